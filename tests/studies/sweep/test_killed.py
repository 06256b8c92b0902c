"""A sweep of 24 cells, killed at a random moment and resumed, leaves what an uninterrupted one leaves."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simfl.cli import main
from tests.engine.harness import ROOT
from tests.studies.sweep.small import BASE, files, study

CELLS = 24
GRID = {"network.users.latency_s": [0.01, 0.05], "dropout.rate": [0.0, 0.2]}


def simfl(*arguments: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(["sweep", *arguments])
    assert left.value.code == 0


def cells(out: Path) -> dict[str, int]:
    """Those that are in their place, with the time when they were written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("cells/[0-9a-f]*/about.json")}


def stopped(
    file: Path, out: Path, jobs: int, after: int, delay_s: float, by: signal.Signals
) -> tuple[int, str]:
    """Start a sweep and send it a signal once so many cells are there, and a bit later."""
    command = [sys.executable, "-m", "simfl", "sweep", str(file), "--out", str(out), "--jobs", str(jobs)]
    running = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while len(cells(out)) < after and running.poll() is None:
        time.sleep(0.005)
    time.sleep(delay_s)
    running.send_signal(by)
    _, errors = running.communicate(timeout=60)
    return running.returncode, errors


def try_once(file: Path, whole: Path, out: Path, jobs: int, rng: random.Random) -> None:
    code, _ = stopped(file, out, jobs, rng.randrange(CELLS - 2), rng.uniform(0, 0.05), signal.SIGKILL)
    assert code == -signal.SIGKILL
    kept = cells(out)
    assert len(kept) < CELLS
    simfl(str(file), "--out", str(out), "--jobs", "1")
    assert files(out) == files(whole)
    assert kept.items() <= cells(out).items(), "a cell was run again"


@pytest.mark.ci
def test_killed_and_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = study(tmp_path, grid=GRID, seeds=6)
    simfl(str(file), "--out", str(tmp_path / "whole"), "--jobs", "1")
    assert len(cells(tmp_path / "whole")) == CELLS
    try_once(file, tmp_path / "whole", tmp_path / "out", 1, random.Random(3))
    assert "24 cells: " in capsys.readouterr().out


@pytest.mark.slow
def test_killed_and_resumed_ten_times(tmp_path: Path) -> None:
    file = study(tmp_path, base={**BASE, "rounds": 10}, grid=GRID, seeds=6)
    simfl(str(file), "--out", str(tmp_path / "whole"), "--jobs", "2")
    rng = random.Random(10)
    for attempt in range(10):
        try_once(file, tmp_path / "whole", tmp_path / f"out{attempt}", 2, rng)


@pytest.mark.ci
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_interrupted_sweep_ends_soon_and_can_continue(tmp_path: Path, jobs: int) -> None:
    file = study(tmp_path, base={**BASE, "rounds": 20}, grid=GRID, seeds=6)
    out = tmp_path / "out"
    code, errors = stopped(file, out, jobs, 2, 0.0, signal.SIGINT)
    assert code == 130
    kept = len(cells(out))
    assert (
        errors
        == f"Interrupted; {kept} of 24 cells are kept in {out}; the same command continues from there\n"
    )
    assert {path.name for path in out.iterdir()} == {"cells", ".lock"}
