"""docs/howto: every snippet runs on the tutorial's scenario, every command prints what its page shows."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

import simfl
from simfl.protocols.registry import PROTOCOLS
from tests.docs.pages import ROOT, Command, blocks, differs, session
from tests.docs.shell import Shell
from tests.docs.test_realism import joined
from tests.docs.test_tutorial import quicker

PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))
TUTORIAL = yaml.safe_load((ROOT / "scenarios" / "tutorial.yaml").read_text(encoding="utf-8"))


@pytest.mark.ci
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "yaml")], ids=lambda page: page.stem)
def test_its_snippets_run(page: Path) -> None:
    for block in blocks(page, "yaml"):
        world = joined(deepcopy(TUTORIAL), yaml.safe_load(block.text))
        if "targets" not in world:  # an accuracy needs real training
            world["payload"] = "shadow"
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


def test_the_settings_have_every_protocol_and_bound(shell: Shell) -> None:
    page = ROOT / "docs" / "howto" / "settings.md"
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.M) == list(PROTOCOLS)
    (block,) = (block for block in blocks(page, "") if block.text.startswith("# secagg_plus"))
    assert block.text in shell.run(Command("simfl check scenarios/sync_breakdown.yaml"))


@pytest.mark.slow
def test_the_table_of_selection_schemes(shell: Shell) -> None:
    """Minutes. Accuracies are sums of floats, and are left out."""
    page = ROOT / "docs" / "howto" / "selection.md"
    (block,) = (block for block in blocks(page, "") if block.text.startswith("Who took part"))
    printed = shell.run(Command("simfl sweep scenarios/studies/multi_round.yaml"))

    def lines(text: str) -> list[str]:
        return [re.sub(r"^(\w+ +)\d\.\d{3}±\d\.\d{3}", r"\1", line) for line in text.splitlines()]

    shown = [line for row in lines(block.text) for line in ("...", row)]
    assert not differs(tuple(shown), "\n".join(lines(printed)))
