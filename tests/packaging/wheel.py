"""The wheel, and a scenario that is begun and run from it in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(folder: Path) -> Path:
    """Build the wheel with the backend of this environment, without fetching anything."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("simfl-*.whl")
    return wheel


def simfl(python: str, folder: Path, *arguments: str, path: Path | None = None) -> str:
    """What a command of the installed simfl prints, in this folder.

    path: where simfl is installed, unless it is in Python's own packages.
    """
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"PYTHONPATH": str(path)} if path else {}
    command = [python, "-m", "simfl", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def begun_and_run(python: str, folder: Path, *more: str, path: Path | None = None) -> str:
    """The digest of the trace that `simfl init` and `simfl run` leave in an empty folder."""
    assert not list(folder.iterdir())
    begun = simfl(python, folder, "init", path=path)
    assert begun == "Written to tutorial.yaml\nTry: simfl run tutorial.yaml\n"
    run = simfl(python, folder, "run", "tutorial.yaml", "--out", "run", *more, path=path)
    assert "aggregates exact" in run
    return sha256((folder / "run" / "trace.jsonl").read_bytes()).hexdigest()


def planned(python: str, folder: Path, path: Path | None = None) -> str:
    """The scenario that `simfl plan` writes for the fleet of docs/plan.md."""
    begun = simfl(python, folder, "init", "fleets/phones", path=path)
    assert begun.endswith("Try: simfl plan fleets/phones.yaml\n")
    assert "\nTake " in simfl(python, folder, "plan", "fleets/phones.yaml", path=path)
    return (folder / "planned.yaml").read_text(encoding="utf-8")
