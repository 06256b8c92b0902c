"""An aggregate that is not the plain sum: exit code 1 and a line on stderr, after all is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simfl.cli import main
from simfl.cli.common import FAILED
from simfl.config.yaml_tree import dump
from simfl.runs import simulation
from simfl.studies.sweep import run as sweeping
from tests.engine.harness import FILES, SIX, SYNC
from tests.studies.sweep.small import BASE

SHORT: dict[str, Any] = {
    **SYNC,
    "population": {**SYNC["population"], "users": 6},
    "privacy": SIX["privacy"],
    "protocols": ["fedavg", "secagg"],
    "rounds": 3,
}
"""Three rounds of six users."""
LINE = "secagg: not the plain sum of its updates in round 1, 2 of 3: 14 elements off\n"


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Seven elements of SecAgg's sums are off in each round after the first."""
    original = simulation.measurement

    async def measured(ops: Any, outcome: Any, speed_ns: int | None) -> Any:
        measurement = await original(ops, outcome, speed_ns)
        if outcome.audit is None or outcome.round == 0 or measurement.wrapped is None:
            return measurement
        return replace(measurement, aggregate_exact=False, differ=7)

    original_one = simulation._Run.one

    async def one(this: Any, name: str, *more: Any) -> None:
        monkeypatch.setattr(simulation, "measurement", measured if name == "secagg" else original)
        await original_one(this, name, *more)

    monkeypatch.setattr(simulation._Run, "one", one)
    return


def ended(*arguments: object) -> Any:
    with pytest.raises(SystemExit) as left:
        main(list(map(str, arguments)))
    return left.value.code


@pytest.mark.ci
@pytest.mark.usefixtures("wrong")
def test_inexact_rounds_end_run_report_and_compare_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three rounds of six users; the same scenario's second run under another seed."""
    (tmp_path / "small.yaml").write_text(dump(SHORT))
    run = ("run", tmp_path / "small.yaml", "--no-progress")
    assert ended(*run, "--out", tmp_path / "one") == FAILED == 1
    assert capsys.readouterr().err == f"simfl: {LINE}"
    assert {path.name for path in (tmp_path / "one").iterdir()} == FILES
    assert ended(*run, "--out", tmp_path / "two", "--seed", 6, "--format", "json") == 1
    capsys.readouterr()
    assert ended("report", tmp_path / "one") == 1
    assert capsys.readouterr().err == f"simfl: {LINE}"
    assert (tmp_path / "one" / "report.html").exists()
    for format_ in ("table", "json"):
        assert ended("compare", tmp_path / "one", tmp_path / "two", "--format", format_) == 1
        assert capsys.readouterr().err == f"simfl: one: {LINE}simfl: two: {LINE}"


@pytest.mark.ci
@pytest.mark.usefixtures("wrong")
def test_inexact_cells_end_a_sweep_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cells of three rounds, run in this process."""
    base = {**BASE, "payload": "real", "protocols": ["fedavg", "secagg"], "rounds": 3}
    file = tmp_path / "small.yaml"
    file.write_text(dump({"base": base, "grid": {"dropout.rate": [0.0, 0.1]}, "seeds": 1}))
    perform = sweeping.Sweep.perform

    def here(self: Any, todo: Any, *_: Any) -> None:
        perform(self, todo)

    monkeypatch.setattr(sweeping.Sweep, "perform", here)
    assert ended("sweep", file, "--out", tmp_path / "sweep") == 1
    errors = capsys.readouterr().err
    assert errors.count(LINE.partition(" in ")[0]) == 2
    assert "simfl: dropout.rate=0.1, seed=5: secagg: not the plain sum" in errors
    assert (tmp_path / "sweep" / "means.csv").exists()


@pytest.mark.ci
def test_exact_runs_print_nothing_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.yaml").write_text(dump(SHORT))
    assert ended("run", tmp_path / "small.yaml", "--no-progress", "--out", tmp_path / "one") == 0
    assert ended("report", tmp_path / "one") == 0
    assert capsys.readouterr().err == ""


# --- folders and settings that cannot be ----------------------------------------------------------
@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
def test_an_interval_that_saves_nothing_is_refused(
    seconds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.yaml").write_text(dump(SHORT))
    out = tmp_path / "out"
    assert ended("run", tmp_path / "small.yaml", "--out", out, f"--save-every={seconds}") == 2
    errors = " ".join(capsys.readouterr().err.split())
    assert "Invalid value for '--save-every'" in errors
    assert seconds in errors
    assert not out.exists()
    with pytest.raises(ValueError, match="save_every_s: must be from 0 up"):
        simulation.run(SHORT, out=out, save_every_s=float(seconds))


def test_a_folder_without_a_run_is_named_beside_those_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for command in (
        ("report", "empty"),
        ("privacy", "sums", "empty"),
        ("privacy", "attack", "least_squares", "empty"),
    ):
        assert ended(*command) == 2
        assert capsys.readouterr().err == "empty is no run's folder; there are no runs in runs/\n"
    (tmp_path / "small.yaml").write_text(dump(SHORT))
    assert ended("run", "small.yaml", "--no-progress", "--set", "rounds=1") == 0
    for command, name in ((("report", "nothere"), "nothere"), (("compare", "runs/small", "empty"), "empty")):
        capsys.readouterr()
        assert ended(*command) == 2
        assert capsys.readouterr().err == f"{name} is no run's folder; runs here: runs/small\n"
    assert ended("run", "--resume", "runs/none") == 2
    assert capsys.readouterr().err == "runs/none: there is no such folder\n"
    assert ended("run", "small.yaml", "--clock", "recorded:nowhere") == 2
    expected = "--clock: clock: nowhere: there is no such folder, and so no trace.jsonl\n"
    assert capsys.readouterr().err == expected
