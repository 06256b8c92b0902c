"""`simfl report` alone is of the run that was written last, whatever else is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simfl.cli import main
from simfl.errors import BadInput
from simfl.runs.folder.latest import is_latest, latest
from simfl.runs.folder.saved_rounds import BASE, NAME
from simfl.runs.folder.unfinished import recover
from tests.engine.harness import SIX, SYNC, run
from tests.runs.folder.test_resume import interrupted
from tests.studies.sweep.small import study

SHADOW = {"payload": "shadow", "learning.dataset": {"kind": "synthetic", "train": 60, "test": 20}}


def dated(folder: Path, day: int) -> Path:
    """A folder whose files are all of a day."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (day * 86_400, day * 86_400))
    return folder


def finished(folder: Path, day: int) -> Path:
    run(SHADOW, out=folder)
    return dated(folder, day)


def unfinished(folder: Path, day: int) -> Path:
    """As one that was killed: what was finished is saved, and in no summary."""
    assert interrupted(SYNC, {**SIX, **SHADOW, "rounds": 8}, folder, resume=False, more=2)
    (folder / "summary.json").unlink()
    return dated(folder, day)


def test_the_run_that_was_written_last(tmp_path: Path) -> None:
    """Names say nothing, and files that others write into a run's folder do not either."""
    newest = finished(tmp_path / "b", 3)
    older = [finished(tmp_path / name, day) for name, day in (("a", 2), ("c", 1))]
    for folder in (*older, tmp_path):
        (folder / "report.html").write_text("made just now")
    assert latest(tmp_path) == newest
    assert is_latest(newest, tmp_path)
    assert not is_latest(older[0], tmp_path)
    assert not is_latest(tmp_path / "d" / "b", tmp_path)


def test_an_unfinished_run_is_one(tmp_path: Path) -> None:
    runs = [unfinished(tmp_path / "b", 1), finished(tmp_path / "a", 2)]
    assert latest(tmp_path) == runs[1]
    runs.append(unfinished(tmp_path / "c", 3))
    assert latest(tmp_path) == runs[2]


def test_a_report_does_not_make_a_run_the_latest(tmp_path: Path) -> None:
    """It writes the summary of a killed run."""
    old, new = unfinished(tmp_path / "old", 1), finished(tmp_path / "new", 2)
    recover(old)
    assert (old / "summary.json").stat().st_mtime > (new / "summary.json").stat().st_mtime
    assert latest(tmp_path) == new


@pytest.mark.ci
def test_other_folders_are_not_the_latest(tmp_path: Path) -> None:
    """Nor what lies deeper: a sweep's cells and kept traces, and runs in a folder of their own."""
    mine = finished(tmp_path / "runs" / "mine", 1)
    with pytest.raises(SystemExit):
        main(
            [
                "sweep",
                str(study(tmp_path)),
                "--out",
                str(tmp_path / "runs" / "s"),
                "--jobs",
                "1",
                "--keep-traces",
            ]
        )
    assert list((tmp_path / "runs" / "s").rglob("trace.jsonl"))
    finished(tmp_path / "runs" / "deeper" / "x", 2)
    (tmp_path / "runs" / "half").mkdir()
    (tmp_path / "runs" / "half" / "summary.json").write_text("{}")
    (tmp_path / "runs" / "begun" / NAME).mkdir(parents=True)
    (tmp_path / "runs" / "begun" / NAME / BASE).touch()
    (tmp_path / "runs" / "notes.txt").touch()
    (tmp_path / "runs" / "gone").symlink_to(tmp_path / "nowhere")
    assert latest(tmp_path / "runs") == mine


def test_without_a_run_there_is_none(tmp_path: Path) -> None:
    for runs in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(BadInput, match=f"{runs}: holds no run"):
            latest(runs)


# --- the command ----------------------------------------------------------------------------------
def told(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> tuple[str, str]:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    assert left.value.code == code
    return capsys.readouterr()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `runs` of an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return Path("runs")


def test_report_names_the_run_that_it_took(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day, name in enumerate(("tutorial-2", "tutorial"), 1):
        finished(runs / name, day)
    out, errors = told(capsys, 0, "report")
    assert out.startswith("Report of runs/tutorial, the latest run\n")
    assert errors == ""
    assert (runs / "tutorial" / "report.html").exists()
    assert not (runs / "tutorial-2" / "report.html").exists()


def test_latex_on_stdout_is_the_table_alone(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(runs / "x", 1)
    out, errors = told(capsys, 0, "report", "--latex")
    assert out.startswith("% ")
    assert errors == "Report of runs/x, the latest run\n"


@pytest.mark.usefixtures("runs")
def test_report_without_a_run_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    message = "runs: holds no run: run a scenario, or name a run's folder\n"
    assert told(capsys, 2, "report") == ("", message)
