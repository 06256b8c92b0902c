"""A folder that is written again holds no report of the results before; a stranger's files stay."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simfl.runs.folder.outdated import outdated_files
from simfl.runs.folder.unfinished import recover
from tests.engine.harness import FILES, ROOT, SIX, SYNC, run
from tests.runs.folder.test_latest import told
from tests.runs.folder.test_resume import interrupted

TUTORIAL = str(ROOT / "scenarios" / "tutorial.yaml")
QUICK = ["--set", "payload=shadow", "--set", "rounds=1"]
REPORTS = {"report.html", "trace.perfetto.json"}
SHADOW = {"payload": "shadow", "learning.dataset": {"kind": "synthetic", "train": 60, "test": 20}}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.ci
def test_a_new_run_removes_the_reports_of_the_old(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="simfl[figures] is not installed")
    command = ["run", TUTORIAL, *QUICK, "--out", str(tmp_path)]
    told(capsys, 0, *command)
    told(capsys, 0, "report", str(tmp_path), "--figures", "--perfetto")
    mine = {"notes.txt", "figures/mine.svg", "updates-mine.npz", "breakdown.svg"}
    for name in mine:
        (tmp_path / name).touch()
    drawn = sorted(files(tmp_path) - FILES - REPORTS - mine)
    assert len(drawn) >= 4
    out, errors = told(capsys, 0, *command, "--seed", "9", "--format", "json")
    removed = ", ".join(["report.html", "trace.perfetto.json", *drawn])
    assert errors == f"Removed from {tmp_path}, as of earlier results: {removed}\n"
    assert out.startswith("{")
    assert files(tmp_path) == FILES | mine


def test_an_empty_folder_of_figures_goes_too(tmp_path: Path) -> None:
    run(SHADOW, out=tmp_path)
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "timing_2.png").touch()
    run({**SHADOW, "seed": 9}, out=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES


def test_updates_that_are_not_recorded_again_go(tmp_path: Path) -> None:
    over = {"protocols": ["fedavg"], "record_updates": True}
    run(over, out=tmp_path)
    assert files(tmp_path) == FILES | {"updates-fedavg.npz"}
    run({**over, "seed": 9}, out=tmp_path)
    assert files(tmp_path) == FILES | {"updates-fedavg.npz"}
    run({"protocols": ["fedavg"]}, out=tmp_path)
    assert files(tmp_path) == FILES


@pytest.mark.ci
def test_the_same_results_keep_their_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As where an interrupted run is reported twice, and its files are written each time."""
    assert interrupted(SYNC, {**SIX, **SHADOW, "rounds": 8}, tmp_path, resume=False, more=2)
    told(capsys, 0, "report", str(tmp_path), "--perfetto")
    recover(tmp_path)
    assert files(tmp_path) >= REPORTS
    run({**SIX, **SHADOW, "rounds": 8}, out=tmp_path, resume=True)
    assert files(tmp_path) == FILES


@pytest.mark.ci
@pytest.mark.parametrize("bad", [["--set", "population.users=0"], ["--set", "profile=nosuch"]])
def test_a_run_that_does_not_begin_removes_nothing(
    bad: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(SHADOW, out=tmp_path)
    told(capsys, 0, "report", str(tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    told(capsys, 2, "run", TUTORIAL, *bad, "--out", str(tmp_path))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_files_in_a_folder_without_a_run_stay(tmp_path: Path) -> None:
    mine = {"report.html", "figures/breakdown.svg", "updates-fedavg.npz"}
    (tmp_path / "figures").mkdir()
    for name in mine:
        (tmp_path / name).touch()
    assert outdated_files(tmp_path) == []
    run({**SHADOW, "protocols": ["fedavg"]}, out=tmp_path)
    assert files(tmp_path) == FILES | mine


@pytest.mark.ci
def test_a_run_prints_the_command_of_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for where, shown_by in {
        (): r"runs/tutorial \(SIZE; simfl report shows it\)",
        ("--out", "runs/mine"): r"runs/mine \(SIZE; simfl report shows it\)",
        ("--out", "else/where"): r"else/where \(SIZE; simfl report else/where shows it\)",
    }.items():
        out, _ = told(capsys, 0, "run", TUTORIAL, *QUICK, *where)
        size = re.search(f"^Written to {shown_by.replace('SIZE', r'([0-9.]+) MB')}\n\\Z", out, re.M)
        assert size
        folder = Path(where[1] if where else "runs/tutorial")
        assert 0 <= float(size[1]) * 1e6 - sum((folder / name).stat().st_size for name in files(folder)) < 1e5
    told(capsys, 0, "report", "else/where")
