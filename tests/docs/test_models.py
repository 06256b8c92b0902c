"""docs/models.md: its scenarios run."""

from __future__ import annotations

import pytest

import simfl
from simfl.scenario.load import load
from simfl.scenario.yaml_tree import parse, plain
from tests.docs.pages import ROOT, Block, blocks
from tests.engine.harness import SIX, SYNC

PAGE = ROOT / "docs" / "models.md"


@pytest.mark.parametrize("block", blocks(PAGE, "yaml"))
def test_its_scenarios_run(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples")
    said = plain(parse(block.text, PAGE.name))
    learning = {f"learning.{key}": value for key, value in said.pop("learning").items()}
    patient = {f"deadlines.{state}": 1e6 for state in SYNC["deadlines"]}
    world = load(SYNC, {**SIX, **patient, **said, **learning})
    result = simfl.run(world)
    for protocol in result.summary["protocols"].values():
        assert protocol["rounds"][0]["status"] == "completed"
