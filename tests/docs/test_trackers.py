"""docs/trackers.md: its command and its code run; its table names what there is."""

from __future__ import annotations

import contextlib
import io
import re
from typing import get_args

import pytest

from simfl.connect.trackers import VALUES, Name
from tests.docs.pages import ROOT, blocks, session
from tests.docs.shell import Shell

PAGE = ROOT / "docs" / "trackers.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.ci
def test_the_command_writes_where_the_page_says(shell: Shell) -> None:
    pytest.importorskip("tensorboard", reason="simfl[tensorboard] is not installed")
    (block,) = blocks(PAGE, "console")
    (command,) = session(block)
    shell.run(command, "--set", "payload=shadow")
    assert {path.name for path in (shell.folder / "runs/tracked/tensorboard").iterdir()} == {
        "fedavg", "secagg", "lightsecagg",
    }  # fmt: skip


@pytest.mark.ci
def test_the_code_prints_what_the_page_shows(shell: Shell) -> None:
    pytest.importorskip("tensorboard", reason="simfl[tensorboard] is not installed")
    (code,), (text,) = blocks(PAGE, "python"), blocks(PAGE, "text")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code.text, PAGE.name, "exec"), {})
    assert out.getvalue() == text.text
    assert (shell.folder / "runs" / "curves" / "fedavg").is_dir()


def test_the_page_names_all_adapters_and_values() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", TEXT, re.M)) == get_args(Name)
    listed = TEXT.partition("The values have")[2].partition("\n\n")[0]
    assert set(VALUES) <= set(re.findall(r"`(\w+)`", listed))
