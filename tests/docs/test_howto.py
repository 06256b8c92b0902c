"""docs/howto: every snippet runs on the tutorial's scenario, every command prints what its page shows."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import yaml

import simfl
from tests.docs.pages import ROOT, blocks, differs, session
from tests.docs.shell import Shell
from tests.docs.test_realism import joined
from tests.docs.test_tutorial import quicker

PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))
TUTORIAL = yaml.safe_load((ROOT / "scenarios" / "tutorial.yaml").read_text(encoding="utf-8"))


@pytest.mark.ci
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_snippets_run(page: Path) -> None:
    shown = blocks(page, "yaml")
    assert shown
    for block in shown:
        world = joined(deepcopy(TUTORIAL), yaml.safe_load(block.text)) | {"payload": "shadow"}
        summary = simfl.run(world).summary["protocols"]["fedavg"]
        assert any(r["status"] == "completed" for r in summary["rounds"]), block.text


@pytest.mark.ci
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_commands_print_what_it_shows(page: Path, shell: Shell) -> None:
    commands = [command for block in blocks(page, "console") for command in session(block)]
    assert commands
    for command in commands:
        printed = shell.run(command, *quicker(command))
        assert not (wrong := differs(command.prints, printed)), f"{command.line}: {wrong}\n{printed}"
