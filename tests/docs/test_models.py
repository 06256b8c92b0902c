"""docs/models.md: its scenarios run, and its model is built, trained and sent as the page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import nn

import simfl
from simfl.config.yaml_tree import parse, plain
from simfl.learning.models import Model
from simfl.learning.models.facts import facts
from simfl.scenario import schema
from simfl.scenario.load import load
from tests.docs.pages import ROOT, Block, blocks
from tests.engine.harness import SIX, SYNC

PAGE = ROOT / "docs" / "models.md"
SUCCESSORS = """
import numpy as np
from simfl.learning.data import Dataset, Split


class Successors(Dataset):
    def load(self, rng, root):
        x = rng.integers(0, 9, (300, 5))
        y = (x[:, -1] + 1) % 9
        return Split(x, y, x[:50], y[:50], 9)
"""


TRAINING, *SCENARIOS = blocks(PAGE, "yaml")


def test_its_settings_of_training_are_valid() -> None:
    """Its data set is not here, so nothing is trained."""
    schema.Learning.model_validate(plain(parse(TRAINING.text, PAGE.name))["learning"])


@pytest.mark.ci
@pytest.mark.parametrize("block", SCENARIOS, ids=lambda block: block.text.split()[-1])
def test_its_scenarios_run(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "successors.py").write_text(SUCCESSORS)
    (tmp_path / "focal.py").write_text((ROOT / "examples" / "focal.py").read_text())
    monkeypatch.chdir(tmp_path)
    said = plain(parse(block.text, PAGE.name))
    learning = {f"learning.{key}": value for key, value in said.pop("learning").items()}
    patient = {f"deadlines.{state}": 1e6 for state in SYNC["deadlines"]}
    result = simfl.run(load(SYNC, {**SIX, **patient, **said, **learning}))
    for protocol in result.summary["protocols"].values():
        assert protocol["rounds"][0]["status"] == "completed"


def test_its_model_sends_its_adapter() -> None:
    (block,) = blocks(PAGE, "python")
    names: dict[str, Any] = {"Model": Model, "ClassVar": ClassVar, "nn": nn, "np": np, "__name__": "page"}
    exec(compile(block.text, PAGE.name, "exec", dont_inherit=True), names)
    known = facts(names["Adapter"](), (16,), 3)
    assert (known.d, known.macs) == (8 * 8 + 8, 16 * 8 + 8 * 8 + 8 * 3)
