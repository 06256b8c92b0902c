"""A run's folder may come from anywhere: reading it executes no file that its scenario names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import simfl
from tests.engine.harness import ASYNC, ROOT, SYNC

SPY = """
from pathlib import Path
Path({marker!r}).touch()
"""
FILES = {
    "rounds": (SYNC, {
        "protocols": {"pads": {"module": "FOLDER/dealt_pads.py:DealtPads"}},
        "selection": {"module": "FOLDER/rested.py:Rested", "users": 2, "rest_rounds": 1},
        "population.users": 6, "privacy": {"T": 1, "D": 0, "U": 2},
    }),
    "buffers": (ASYNC, {
        "protocols": {"fedbuff": {"staleness": {"module": "FOLDER/hinge.py:Hinge"}}},
        "population.availability": {"module": "FOLDER/charging.py:Charging", "day_s": 20.0, "plugged_s": 15},
        "dropout": "none", "horizon_s": 500.0,
    }),
}  # fmt: skip


def moved(value: object, folder: Path) -> object:
    """The same with the examples' folder in its place."""
    if isinstance(value, dict):
        return {key: moved(inner, folder) for key, inner in value.items()}
    return value.replace("FOLDER", str(folder)) if isinstance(value, str) else value


@pytest.mark.parametrize("name", FILES)
def test_report_executes_nothing(name: str, tmp_path: Path) -> None:
    base, overrides = FILES[name]
    for path in (ROOT / "examples").glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"))
    changes = {key: moved(value, tmp_path) for key, value in overrides.items()}
    simfl.run(base, {**changes, "payload": "shadow"}, out=tmp_path / "run")
    for path in tmp_path.glob("*.py"):
        path.write_text(SPY.format(marker=str(tmp_path / "executed")))
    words = [sys.executable, "-m", "simfl", "report", str(tmp_path / "run"), "--figures"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").exists()
    assert not (tmp_path / "executed").exists()
    for path in tmp_path.glob("*.py"):
        path.unlink()
    assert subprocess.run(words, capture_output=True, cwd=ROOT).returncode == 0
