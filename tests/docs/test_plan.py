"""docs/plan.md names the needed keys of a fleet, and shows what the command prints."""

from __future__ import annotations

import re

import pytest

from simfl.scenario.fleet import Fleet
from tests.docs.pages import ROOT, blocks, differs, session
from tests.docs.shell import Shell

PAGE = ROOT / "docs" / "plan.md"


def test_the_keys_that_it_calls_needed_have_no_default() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    (listed,) = re.findall(r"Only (.*?) have no default", text)
    needed = {key for key, info in Fleet.model_fields.items() if info.is_required()}
    assert set(re.findall(r"`(\w+)`", listed)) == needed


@pytest.mark.slow
def test_what_it_shows_is_printed(shell: Shell) -> None:
    (shown,) = [command for block in blocks(PAGE, "console") for command in session(block)]
    assert not differs(shown.prints, shell.run(shown))
