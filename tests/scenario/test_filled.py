"""`simfl check` prints a scenario with all that rules derive of it, and it runs the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simfl.config.yaml_tree import parse, plain
from simfl.runs.simulation import run
from simfl.scenario.load import filled_yaml, load
from simfl.scenario.schema import Scenario
from tests.docs.pages import ROOT

SMALL = {"clock": "modelled", "payload": "shadow", "rounds": 2}
SYNC = ROOT / "scenarios" / "sync_breakdown.yaml"
GIVEN: list[tuple[str, dict[str, Any]]] = [
    ("sync_breakdown", {"privacy": {"T": 10, "D": 10}, "protocols.secagg_plus": {"sigma": 20.0}}),
    ("sync_breakdown", {"protocols": {"ccesa": {"majority": True}}}),
    ("sync_breakdown", {"protocols.lightsecagg.selection": {"random": 60}, "privacy": {"T": 9, "D": 9}}),
    ("mixed_links", {}),
    ("async_buffer", {}),
]


@pytest.mark.ci
@pytest.mark.parametrize(("name", "overrides"), GIVEN)
def test_filled_scenario_runs_the_same(tmp_path: Path, name: str, overrides: dict[str, Any]) -> None:
    scenario = load(ROOT / "scenarios" / f"{name}.yaml", {**overrides, **SMALL})
    text = filled_yaml(scenario)
    assert "null" not in text
    assert "auto" not in text.partition("protocols:")[2]
    file = tmp_path / "filled.yaml"
    file.write_text(text, encoding="utf-8")
    assert run(load(file)).traces == run(scenario).traces


def test_thresholds_are_those_of_the_run() -> None:
    scenario = load(SYNC, {"privacy": {"T": 10, "D": 10}})
    text = filled_yaml(scenario)
    filled = load_text(text)
    for name in scenario.protocols:
        then, now = scenario.params(name), filled.params(name)
        assert (then.t, then.k, then.p, then.U) == (now.t, now.k, now.p, now.U)
    assert filled.privacy is not None
    assert (filled.privacy.U, filled.protocols["secagg"].model_dump()["t"]) == (90, 11)


def test_entries_of_two_sizes_have_no_one_number_of_answers() -> None:
    given = {"privacy": {"T": 9, "D": 9}, "protocols.lightsecagg.selection": {"random": 60}}
    scenario = load(SYNC, given)
    filled = load_text(filled_yaml(scenario))
    assert filled.privacy is not None
    assert filled.privacy.U is None
    notes = list(scenario.protocols["lightsecagg"].notes(scenario.params("lightsecagg")))
    assert notes == ["U = N - D = 60 - 9 = 51"]


def load_text(text: str) -> Scenario:
    return load(plain(parse(text, "filled")))
