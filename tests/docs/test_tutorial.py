"""docs/tutorial.md is followed from its first command to its last."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, blocks, differs, session
from tests.docs.shell import Shell

PAGE = ROOT / "docs" / "tutorial.md"


def test_every_command_prints_what_the_page_shows(shell: Shell) -> None:
    ran = 0
    for block in blocks(PAGE):
        if named := re.match(r"# (\S+\.yaml)\n", block.text):
            (shell.folder / named[1]).write_text(block.text)
            continue
        assert block.language == "console", f"a block that nothing runs: {block.text}"
        for command in session(block):
            here = ["--jobs", "1"] if "sweep" in command.line else []  # no processes that import torch anew
            printed = shell.run(command, *here)
            assert not (wrong := differs(command.prints, printed)), f"{command.line}: {wrong}\n{printed}"
            ran += 1
    assert ran == 15


def test_a_line_that_is_not_printed_is_found() -> None:
    assert not differs(("a", "...", "c"), "a\nb\nc\nd\n")
    assert not differs(("...", "test accuracy │ 0.82"), "a\ntest accuracy │ 0.84\n")
    assert "'x' is not printed" in differs(("a", "...", "x"), "a\nb\n")
    assert "there is 'b'" in differs(("a", "c"), "a\nb\nc\n")
    assert "nothing more" in differs(("a", "b"), "a\n")
    assert differs(("test accuracy │ 0.82",), "test accuracy │ 0.92\n")


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#\w+)?\)", page.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"
