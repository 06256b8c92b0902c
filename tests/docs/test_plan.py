"""docs/plan.md has every key of a fleet, and shows what the command prints."""

from __future__ import annotations

import re

import pytest

from simfl.scenario.fleet import Fleet
from simfl.scenario.schema import Scenario
from tests.docs.pages import ROOT, blocks, differs, session
from tests.docs.shell import Shell

PAGE = ROOT / "docs" / "plan.md"


def test_every_key_of_a_fleet_is_there() -> None:
    keys = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.M)
    own = [key for key in Fleet.model_fields if key not in Scenario.model_fields]
    assert set(keys) - {"protocols"} == set(own)


@pytest.mark.slow
def test_what_it_shows_is_printed(shell: Shell) -> None:
    (shown,) = [command for block in blocks(PAGE, "console") for command in session(block)]
    assert not differs(shown.prints, shell.run(shown))
