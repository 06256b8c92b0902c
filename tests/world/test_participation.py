"""Participation in a run's summary, by hand and against the paper's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from papers.bounds import cardinality
from simfl.runs.folder.result import taking_part
from simfl.runs.results import metrics
from simfl.scenario.load import load
from tests.engine.harness import ROOT, SIX, SYNC, run, script

SCENARIO = ROOT / "scenarios" / "multi_round.yaml"


def shares(name: str = "fedavg", **overrides: Any) -> dict[str, Any]:
    result = run({**SIX, "protocols": [name], **overrides})
    found: dict[str, Any] = result.summary["protocols"][name]["participation"]
    return found


def test_everyone_every_round_hides_everyone() -> None:
    found = shares(rounds=3)
    assert found == {
        "family": None,
        "T_weak": [[6, 6]] * 3,
        "T_strong": [6] * 3,
        "F": [0.0] * 3,
        "C": [6.0] * 3,
    }


def test_a_user_lost_from_one_round_is_singled_out_by_the_other() -> None:
    """Sums of {0..5} and {1..5}: their difference is user 0's update."""
    found = shares(rounds=2, dropout=script((0, 1, "upload", "before_send")))
    assert found["T_weak"] == [[6, 6], [1, 1]]
    assert found["T_strong"] == [6, 1]
    assert found["F"] == [0.0, 0.5]
    assert found["C"] == [6.0, 5.5]


def test_a_lost_upload_gives_a_batch_away() -> None:
    selection = {"kind": "multi_round", "users": 4, "T": 2}
    kept = shares(rounds=6, selection=selection)
    assert kept["family"] == 3
    assert kept["T_weak"][-1] == [2, 2]
    assert kept["T_strong"][-1] == 2
    losses = {"rate": [0.3, 0.0, 0.0, 0.0, 0.0, 0.0]}  # one of the first round's four
    lost = shares(rounds=6, selection=selection, dropout=losses)["T_weak"][-1]
    assert lost == [1, 1]


def test_a_family_that_json_could_not_hold_is_left_out(tmp_path: Path) -> None:
    """14,000 of 28,000 users are one of more than 10^8000 sets: Python's JSON reads 4,300 digits."""
    begin = metrics.Round(0, 0, 1, None, (0,), ((0, "", 0),))
    many = {"population.users": 28_000, "selection": {"kind": "random", "users": 14_000}}
    s = load(SYNC, {**many, "learning.dataset": {"kind": "synthetic", "train": 28_000, "test": 9}})
    assert taking_part([begin], s).family is None
    assert taking_part([begin], load(s, {"selection.users": 2})).family == 28_000 * 27_999 // 2


def test_an_aborted_round_has_a_row_of_zeros() -> None:
    lost = script(*((user, 0, "upload", "before_send") for user in range(6)))
    found = shares(rounds=2, dropout=lost)
    assert found["C"] == [0.0, 3.0]
    assert found["T_weak"] == [None, [6, 6]]
    assert found["T_strong"] == [None, 6]


def test_the_matrix_is_written_by_its_ones(tmp_path: Path) -> None:
    run({**SIX, "protocols": ["fedavg"], "rounds": 2, "selection": {"random": 2}}, out=tmp_path)
    header, *lines = (tmp_path / "participation.csv").read_text().split()
    assert header == "protocol,round,user"
    assert [line.split(",")[:2] for line in lines] == [["fedavg", "0"]] * 2 + [["fedavg", "1"]] * 2


@pytest.mark.ci
def test_families_of_the_shipped_scenario_are_the_papers() -> None:
    """Multi-RoundSecAgg Table 1; it prints 91389 for C(40, 4) = 91390, and about 10^16 for random."""
    overrides = {"rounds": 1, "payload": "shadow"}
    names = ("random", "weighted", "partition", "batches_6", "batches_4", "batches_3")
    scenario = load(SCENARIO, overrides)
    result = run(scenario.model_dump(mode="json"))
    families = [result.summary["protocols"][name]["participation"]["family"] for name in names]
    assert families[2:] == [10, 190, 4060, 91390]
    assert families[0] == families[1] == pytest.approx(1.05e16, rel=0.01)


@pytest.mark.ci
@pytest.mark.parametrize(("T", "rounds"), [(3, 150), (12, 150)])
def test_the_engine_skips_rounds_as_often_as_by_theorem_1(T: int, rounds: int) -> None:
    """C within 4 standard errors of its mean; tests/privacy hold the schemes themselves to 1 %."""
    overrides = {
        "rounds": rounds,
        "payload": "shadow",
        "population.users": 24,
        "population.availability": {"bernoulli": 0.9},
        "selection": {"kind": "multi_round", "users": 12, "T": T, "fair": False},
        "protocols": ["fedavg"],
    }
    C = shares(**overrides)["C"][-1]
    expected = cardinality(24, 12, T, 0.1)
    taken = expected / 12
    assert abs(C - expected) <= 4 * 12 * (taken * (1 - taken) / rounds) ** 0.5 + 1e-9
