"""Files that simfl opens for a data set, a trace, a scenario from the network, a run's folder.

Python's audit events name each file that a process opens. Beside what is given lies a folder `private`. No
file of it may be opened, though the data set, trace, scenario or folder names it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import simfl
from tests.engine.harness import ROOT, SYNC
from tests.learning.data.test_idx import published, put

SPY = """
import json, os, sys
opened = []
def note(event, args):
    if event == "open" and isinstance(args[0], str | bytes):
        opened.append(os.path.realpath(os.fsdecode(args[0])))
sys.addaudithook(note)
"""
SMALL = {"population.users": 6, "privacy": {"T": 1, "D": 0, "U": 2}, "dropout": "none"}


def opened_under(folder: Path, code: str, *arguments: str | Path, **environment: str) -> set[str]:
    """Return the files under a folder that a process opens, by their paths in it."""
    code = f"{SPY}{code}\nprint(json.dumps(opened))"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}
    )
    assert process.returncode == 0, process.stderr
    paths = [Path(path) for path in json.loads(process.stdout.splitlines()[-1])]
    inside = [path for path in paths if path.is_relative_to(folder.resolve())]
    return {path.relative_to(folder.resolve()).as_posix() for path in inside}


@pytest.mark.ci
def test_a_data_set_opens_no_other_file(tmp_path: Path) -> None:
    """A file of arrays has a member that is named like a file beside it."""
    arrays = {"x_train": np.ones((8, 2)), "y_train": np.arange(8) % 2}
    arrays |= {"x_test": np.ones((2, 2)), "y_test": np.arange(2), "../private/key": np.ones(1)}
    (tmp_path / "private").mkdir()
    (tmp_path / "private/key.npy").write_bytes(b"secret")
    np.savez(tmp_path / "own.npz", **arrays)
    code = """
import numpy as np
from simfl.learning.data import DATASETS, DataError
try:
    DATASETS["npz"].model_validate({"file": sys.argv[1]}).loaded(np.random.default_rng(0), None)
except DataError as error:
    assert "key" in str(error)
"""
    assert opened_under(tmp_path, code, tmp_path / "own.npz") == {"own.npz"}


@pytest.mark.ci
def test_a_trace_opens_no_other_file(tmp_path: Path) -> None:
    """A line of a trace of users names a file where a user's number should be."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private/key").write_text("secret")
    (tmp_path / "online.csv").write_text("user,from_s,to_s\n0,0,10\nprivate/key,0,10\n")
    code = f"""
import simfl
from simfl.errors import ScenarioError
changes = {{"population.availability": {{"trace": sys.argv[2]}}, **{SMALL!r}}}
try:
    simfl.run(sys.argv[1], changes)
except ScenarioError as error:
    assert "online.csv" in str(error)
else:
    raise AssertionError("the line was accepted")
"""
    (tmp_path / "base.yaml").write_text(json.dumps(SYNC))
    opened = opened_under(tmp_path, code, tmp_path / "base.yaml", tmp_path / "online.csv")
    assert opened == {"base.yaml", "online.csv"}


@pytest.mark.ci
def test_a_servers_scenario_opens_data_sets_of_the_user_alone(tmp_path: Path) -> None:
    """The user has put a data set where SIMFL_DATA points; the server names it, and another folder."""
    put(tmp_path / "data", published())
    put(tmp_path / "private", published())
    learning = {**SYNC["learning"], "dataset": "mnist", "model": "logistic"}
    scenario = {**SYNC, "profile": "reference", "learning": learning}
    (tmp_path / "named.yaml").write_text(json.dumps(scenario))
    code = """
from pathlib import Path
from simfl.errors import BadInput
from simfl.live.join import received
from simfl.runs.build import build
text = Path(sys.argv[1]).read_text()
del opened[:]
build(received(text))
values = json.loads(text)
values["learning"]["data"] = {"root": sys.argv[2]}
try:
    received(json.dumps(values))
except BadInput as error:
    assert "learning.data.root" in str(error)
else:
    raise AssertionError("the folder was accepted")
"""
    arguments = tmp_path / "named.yaml", tmp_path / "private"
    opened = opened_under(tmp_path, code, *arguments, SIMFL_DATA=str(tmp_path / "data"))
    assert opened == {f"data/{name}" for name in published()}


@pytest.mark.ci
def test_reports_open_no_file_that_a_folders_scenario_names(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    rows = "".join(f"{user},0,100000\n" for user in range(6))
    (tmp_path / "private/online.csv").write_text(f"user,from_s,to_s\n{rows}")
    trace = {"trace": str(tmp_path / "private/online.csv")}
    changes = {**SMALL, "population.availability": trace, "payload": "shadow"}
    simfl.run(SYNC, changes, out=tmp_path / "run")
    code = """
from simfl.cli import main
try:
    main(["report", sys.argv[1]])
except SystemExit as end:
    assert not end.code, end.code
"""
    opened = opened_under(tmp_path, code, tmp_path / "run")
    assert "run/summary.json" in opened
    assert not {path for path in opened if path.startswith("private")}
