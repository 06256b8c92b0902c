"""The schema of a summary: a run's own passes whole, and what is wrong is named by its key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simfl.errors import BadInput
from simfl.runs.results import summary
from tests.engine.harness import ASYNC, SESSIONS, SIX, run


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    """Of a run of six users, of whom five are selected."""
    part = {"selection": {"kind": "random", "users": 5}, "privacy": {"T": 1, "D": 1, "U": 4}}
    found: dict[str, Any] = run({**SIX, **part, "rounds": 2}).summary
    return found


@pytest.mark.ci
def test_no_key_of_a_run_is_left_out(tmp_path: Path, content: dict[str, Any]) -> None:
    others = run({"population.availability": SESSIONS}, ASYNC).summary
    for written in (content, others):
        (tmp_path / "summary.json").write_text(json.dumps(written))
        assert json.dumps(summary.read(tmp_path / "summary.json").dump()) == json.dumps(written)


def test_targets_read_back_and_older_files_have_none(tmp_path: Path, content: dict[str, Any]) -> None:
    path = tmp_path / "summary.json"
    written = run({"targets": {"accuracy": 0.01, "loss": 1e-9}}).summary
    path.write_text(json.dumps(written))
    assert summary.read(path).dump() == written
    older = json.loads(json.dumps(content))
    for entry in older["protocols"].values():
        del entry["targets"]
    path.write_text(json.dumps(older))
    assert summary.read(path).dump() == content


def test_a_key_of_a_later_version_is_left_out(tmp_path: Path, content: dict[str, Any]) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({**content, "later": [1]}))
    assert summary.read(tmp_path / "summary.json").dump() == content


ROUND = ("protocols", "secagg", "rounds", 1)
SHARES = ("protocols", "secagg", "participation")


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("seed",), True, "seed is True, expected a valid integer"),
        (("clock",), "sundial", "clock is 'sundial', expected 'measured', 'modelled' or 'recorded'"),
        (("versions",), [], "versions is [], expected"),
        (("versions", "simfl"), 1, "versions.simfl is 1, expected a valid string"),
        ((*ROUND, "loss"), float("nan"), "protocols.secagg.rounds[1].loss is nan, expected a finite number"),
        ((*ROUND, "end_s"), float("inf"), "rounds[1].end_s is inf"),
        ((*ROUND, "end_s"), 10**400, "rounds[1].end_s is 1000"),
        ((*ROUND, "end_s"), -1, "rounds[1].end_s is -1, expected greater than or equal to 0"),
        ((*ROUND, "dropped"), None, "rounds[1].dropped is None, expected a mapping"),
        ((*ROUND, "dropped", "upload"), 1.5, "rounds[1].dropped.upload is 1.5"),
        ((*ROUND, "status"), [], "rounds[1].status is []"),
        ((*ROUND, "ignored"), {"x": "y"}, "rounds[1].ignored.x is 'y'"),
        ((*ROUND, "reason"), "\ud800", "cannot be read (not JSON (unexpected end of hex escape"),
        ((*SHARES, "F"), [0.0], "participation.F must have an entry for each of 2 rounds"),
        ((*SHARES, "T_weak", 0), [1], "participation.T_weak[0] is [1]"),
        (("protocols", "secagg", "staleness"), {"x": 1}, "staleness.x"),
        (("protocols", "secagg", "selection"), "all", "selection is 'all', expected a mapping"),
    ],
)
def test_a_bad_value_is_named(
    place: tuple[Any, ...], value: Any, says: str, tmp_path: Path, content: dict[str, Any]
) -> None:
    damaged = json.loads(json.dumps(content))
    *way, last = place
    inner = damaged
    for key in way:
        inner = inner[key]
    inner[last] = value
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(damaged))
    with pytest.raises(BadInput) as raised:
        summary.read(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert says in str(raised.value)
    assert len(str(raised.value)) < len(str(path)) + 300
