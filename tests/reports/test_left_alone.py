"""A run's folder may come from anywhere: reading it executes no file that its scenario names."""

from __future__ import annotations

import shutil
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


REPORTS = """
import sys
from pathlib import Path
from simfl.cli import main
for delete in (False, True):
    for folder in sys.argv[1:]:
        for path in Path(folder).glob("*.py") if delete else ():
            path.unlink()
        for command in (["report", f"{folder}/run"], ["compare", f"{folder}/run", f"{folder}/copy"]):
            try:
                main(command)
            except SystemExit as left:
                assert not left.code, left.code
"""


@pytest.mark.ci
def test_report_and_compare_execute_nothing(tmp_path: Path) -> None:
    """In a process that has not made the runs: neither changed files nor missing ones are looked at."""
    for name, (base, overrides) in FILES.items():
        folder = tmp_path / name
        folder.mkdir()
        for path in (ROOT / "examples").glob("*.py"):
            (folder / path.name).write_text(path.read_text(encoding="utf-8"))
        changes = {key: moved(value, folder) for key, value in overrides.items()}
        simfl.run(base, {**changes, "payload": "shadow"}, out=folder / "run")
        shutil.copytree(folder / "run", folder / "copy")
        for path in folder.glob("*.py"):
            path.write_text(SPY.format(marker=str(folder / "executed")))
    folders = [str(tmp_path / name) for name in FILES]
    done = subprocess.run([sys.executable, "-c", REPORTS, *folders], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for name in FILES:
        assert (tmp_path / name / "run" / "report.html").exists()
        assert not (tmp_path / name / "executed").exists()
        assert not list((tmp_path / name).glob("*.py"))
