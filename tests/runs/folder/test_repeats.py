"""A run and its repeats: whole runs in one folder, kept by whatever ends the command, gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import simfl.runs.simulation
from simfl.cli import main
from simfl.cli.common import INTERRUPTED, NO_AGGREGATE
from simfl.runs.folder.latest import latest
from simfl.runs.folder.repeats import is_finished, repeats_in
from simfl.runs.folder.unfinished import has_saved
from simfl.runs.simulation import Progress
from tests.engine.harness import FILES, ROOT
from tests.runs.folder.test_latest import dated, finished, told
from tests.runs.folder.test_outdated import files

TUTORIAL = str(ROOT / "scenarios" / "tutorial.yaml")
MEASURED = [TUTORIAL, "--clock", "measured", "--protocols", "fedavg", "--set", "rounds=2"]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three repeats of a run."""
    folder = tmp_path_factory.mktemp("repeats") / "three"
    with pytest.raises(SystemExit) as left:
        main(["run", *MEASURED, "--repeat", "3", "--out", str(folder)])
    assert left.value.code == 0
    return folder


@pytest.mark.ci
def test_each_repeat_is_a_run_of_its_own(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [path.name for path in repeats_in(three)] == ["repeat-1", "repeat-2", "repeat-3"]
    assert all({path.name for path in run.iterdir()} >= FILES for run in repeats_in(three))
    summaries = [json.loads((run / "summary.json").read_text()) for run in repeats_in(three)]
    assert len({summary["seed"] for summary in summaries}) == 1
    assert len({summary["protocols"]["fedavg"]["rounds"][-1]["end_s"] for summary in summaries}) == 3
    out, _ = told(capsys, 0, "report", str(three / "repeat-2"))
    assert "test accuracy" in out
    assert (three / "repeat-2" / "report.html").exists()


@pytest.mark.ci
def test_report_prints_the_table_of_repeats(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, errors = told(capsys, 0, "report", str(three))
    assert "per aggregate of 3 runs" in " ".join(out.split())
    assert out.endswith(f"simfl report {three}/repeat-1 makes the page of one of them\n")
    assert errors == ""
    for option in (["--figures"], ["--latex"], ["--rounds", "0:1"]):
        _, errors = told(capsys, 2, "report", str(three), *option)
        assert errors.endswith(f"holds repeats: name one of them, such as {three}/repeat-1\n")


@pytest.mark.ci
def test_json_is_a_list_and_tables_are_in_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow.parquet", reason="simfl[parquet] is not installed")
    monkeypatch.chdir(tmp_path)
    told(capsys, 0, "run", *MEASURED, "--repeat", "1")
    out, errors = told(capsys, 0, "run", *MEASURED, "--repeat", "2", "--format", "json", "--parquet")
    runs = repeats_in(Path("runs") / "tutorial-2")
    assert json.loads(out) == [json.loads((run / "summary.json").read_text()) for run in runs]
    assert [files(run) for run in runs] == [FILES | {"breakdown.parquet"}] * 2
    assert errors == ""


@pytest.mark.ci(but=["recorded"])
@pytest.mark.parametrize("clock", ["modelled", "recorded"])
def test_repeats_that_would_be_the_same_are_refused(
    clock: str,
    three: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [*MEASURED, "--clock", f"recorded:{three / 'repeat-1'}" if clock == "recorded" else clock]
    out, errors = told(capsys, 2, "run", *arguments, "--repeat", "3")
    assert out == ""
    assert f"under clock {clock} all runs are the same" in " ".join(errors.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.ci
def test_a_repeat_without_an_aggregate_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = ["--set", "deadlines.upload=0.001", "--out", str(tmp_path / "r")]
    out, errors = told(capsys, NO_AGGREGATE, "run", *MEASURED, *late, "--repeat", "2")
    assert "fedavg (run 2): " in out
    assert [line.partition(" has no aggregate: ")[0] for line in errors.splitlines()] == [
        "simfl: repeat-1: fedavg", "simfl: repeat-2: fedavg",
    ]  # fmt: skip


# --- interrupted ----------------------------------------------------------------------------------
def interrupt(monkeypatch: pytest.MonkeyPatch, call: int, rounds: int) -> None:
    """Let the `call`th run of this test be interrupted after so many rounds."""
    calls, original = 0, simfl.runs.simulation.run

    def stop(progress: Progress) -> None:
        if progress.rounds_done >= rounds:
            raise KeyboardInterrupt

    def run(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        loaded, overrides, out, _, resume, *_ = arguments
        return original(loaded, overrides, out, stop if calls == call else None, resume, 0)

    monkeypatch.setattr(simfl.runs.simulation, "run", run)


@pytest.mark.ci
@pytest.mark.parametrize("rounds", [0, 1])
def test_an_interrupt_keeps_finished_repeats(
    rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    interrupt(monkeypatch, 2, rounds)
    _, errors = told(capsys, INTERRUPTED, "run", *MEASURED, "--out", str(folder), "--repeat", "3")
    goes_on = f"simfl run --resume {folder} --repeat 3"
    assert errors == f"Interrupted; 1 of 3 repeats are finished in {folder}, and {goes_on} continues them\n"
    assert has_saved(folder / "repeat-2") == (rounds > 0)
    out, _ = told(capsys, 0, "report", str(folder))
    assert ("repeat-2 is not finished, and left out" in out) == (rounds > 0)
    first = {path: path.read_bytes() for path in (folder / "repeat-1").iterdir()}
    out, _ = told(capsys, 0, *goes_on.split()[1:])
    assert "of 3 runs" in out
    assert [is_finished(run) for run in repeats_in(folder)] == [True] * 3
    assert {path: path.read_bytes() for path in (folder / "repeat-1").iterdir()} == first


@pytest.mark.ci
def test_an_interrupt_before_anything_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    interrupt(monkeypatch, 1, 0)
    assert told(capsys, INTERRUPTED, "run", *MEASURED, "--repeat", "3") == ("", "Interrupted\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.ci
def test_more_repeats_can_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, 0, "run", *MEASURED, "--out", str(tmp_path / "r"), "--repeat", "1")
    out, _ = told(capsys, 0, "run", "--resume", str(tmp_path / "r"), "--repeat", "2")
    assert "of 2 runs" in out


# --- folders --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", "three"], "three holds the repeats of a run: choose another folder"),
        (["--out", "three", "--repeat", "4"], "(simfl run --resume three --repeat N), or choose another"),
        (["--out", "three/repeat-1", "--repeat", "2"], "repeat-1 holds a run: choose another folder"),
        (["--resume", "three"], "three holds the repeats of a run: give --repeat N to continue them"),
        (["--resume", "three/repeat-1", "--repeat", "2"], "repeat-1: holds no repeat of a run"),
        (["--resume", "nowhere", "--repeat", "2"], "nowhere: holds no repeat of a run"),
        (["--resume", "three", "--repeat", "3", "--seed", "9"], "repeat-1 is of another scenario"),
        (["--repeat", "0"], "--repeat"),
    ],
    ids=" ".join,
)
def test_runs_and_repeats_are_not_mixed(
    arguments: list[str],
    says: str,
    three: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(three.parent)
    before = files(three)
    out, errors = told(capsys, 2, "run", *MEASURED, *arguments)
    assert out == ""
    assert says in errors
    assert files(three) == before
    assert [path.name for path in three.parent.iterdir()] == ["three"]


def test_the_latest_run_is_the_folder_of_repeats(tmp_path: Path) -> None:
    for k in (1, 2, 10):
        finished(tmp_path / "x" / f"repeat-{k}", 2)
    old = finished(tmp_path / "y", 1)
    assert latest(tmp_path) == tmp_path / "x"
    assert [path.name for path in repeats_in(tmp_path / "x")] == ["repeat-1", "repeat-2", "repeat-10"]
    dated(old, 3)
    assert latest(tmp_path) == old
