"""A column is read, written and shown as its line says; a new one is that line and the summary's field."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simfl.runs.results.columns import COLUMNS, Column, at
from simfl.runs.results.summary import ProtocolSummary
from tests.engine.harness import ROOT, SIX, SYNC, run, script
from tests.studies.sweep.small import study

NEW = {
    "round_summary.py": {
        '    loss: float | None\n    "': '    on_path: Count\n    loss: float | None\n    "',
        "**vars(m)": "**vars(m), on_path=len({party for _, party, _ in r.critical})",
    },
    "columns.py": {
        "COLUMNS: tuple[Column, ...] = (": """COLUMNS: tuple[Column, ...] = (
    Column("on_path", "mean", _each(lambda r: r.on_path), run="parties on path", headline="Parties",
           latex="Parties", csv=True),"""
    },
}
"""How many parties the critical path names: what is edited in which file."""

FOLLOW = """
import json, sys
from simfl.cli import main
for arguments in json.loads(sys.argv[1]):
    print("$", flush=True)
    try:
        main(arguments)
    except SystemExit as left:
        assert not left.code, left.code
"""


@pytest.fixture(scope="module")
def entry() -> ProtocolSummary:
    """Two rounds of six users, the second aborted: four are lost."""
    lost = script(*((user, 1, "shares", "before_send") for user in range(4)))
    changes = {**SIX, "protocols": ["lightsecagg"], "rounds": 2, "dropout": lost}
    return run(changes).summarised().protocols["lightsecagg"]


def column(key: str, phase: str = "") -> Column:
    """Return the column of a measure."""
    (found,) = (c for c in COLUMNS if c.measure == (key, phase))
    return found


def test_measures_name_columns_once() -> None:
    measures = [c.measure for c in COLUMNS]
    assert len(set(measures)) == len(measures)


def test_figures_by_hand(entry: ProtocolSummary) -> None:
    first, second = entry.rounds
    assert (first.completed, second.completed) == (True, False)
    assert column("total_s").number(entry) == first.end_s - first.start_s == entry.mean.total_s
    assert column("total_s").text(entry) == f"{first.end_s - first.start_s:.3f}"
    assert column("span_s", "upload").number(entry) == first.span_s.upload
    assert column("per_aggregate_s").number(entry) == pytest.approx(second.end_s - first.start_s)
    assert column("failed_s").number(entry) == pytest.approx(second.end_s - second.start_s)
    assert column("critical_s", "offline").number(entry) == pytest.approx(
        first.critical_s.offline + second.critical_s.offline
    )
    assert column("bytes_up").number(entry) == first.bytes_up + second.bytes_up
    assert column("user_bytes_up").number(entry) == (first.bytes_up + second.bytes_up) / 12
    assert (column("completed").number(entry), column("completed").text(entry)) == (1, "1 of 2")
    assert (column("exact").number(entry), column("exact").text(entry)) == (1, "1 of 1")
    assert (column("survivors").number(entry), column("survivors").text(entry)) == (6, "6")
    assert column("users_lost").text(entry) == str(second.lost) == "4"


def test_nothing_is_no_number(entry: ProtocolSummary) -> None:
    nothing = entry.model_copy(update={"rounds": [], "final_accuracy": None})
    assert column("total_s").number(nothing) is None
    assert column("accuracy").text(nothing, "none") == "none"
    assert column("completed").text(nothing) == "0 of 0"
    assert column("exact").text(nothing) == "-"


def test_a_range_has_two_ends(entry: ProtocolSummary) -> None:
    rounds = [entry.rounds[0].model_copy(update={"survivors": n}) for n in (5, 3, 4)]
    assert column("survivors").text(entry.model_copy(update={"rounds": rounds}), to="..") == "3..5"


def test_faults(entry: ProtocolSummary) -> None:
    assert column("completed").wrong(entry)
    assert column("aborted").wrong(entry)
    assert not column("exact").wrong(entry)
    assert not column("refused").wrong(entry)
    assert not column("users_lost").wrong(entry)


def test_staleness_is_of_asynchronous_runs(entry: ProtocolSummary) -> None:
    stale = entry.model_copy(update={"staleness": {"0": 1, "2": 3}})
    assert not {"staleness", "discarded_stale"} & {c.key for c in at("run", [entry])}
    assert {"staleness", "discarded_stale"} <= {c.key for c in at("run", [entry, stale])}
    assert column("staleness").text(stale) == "1.50"


def test_surplus_is_of_runs_that_over_select(entry: ProtocolSummary) -> None:
    assert "surplus" not in {c.key for place in ("run", "losses", "csv") for c in at(place, [entry])}
    over = entry.model_copy(update={"selection": {"kind": "random", "users": 4, "over": 1.5}})
    for place in ("run", "losses", "csv"):
        assert "surplus" in {c.key for c in at(place, [entry, over])}
    told = over.model_copy(update={"rounds": [r.model_copy(update={"surplus": 2}) for r in over.rounds]})
    assert column("surplus").text(told) == str(2 * len(over.rounds))
    assert told.rounds[0].lost == over.rounds[0].lost


@pytest.mark.ci
def test_a_new_column_is_two_files(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "simfl" / "runs").mkdir(parents=True)
    for path in (*(ROOT / "simfl").iterdir(), *(ROOT / "simfl" / "runs").iterdir()):
        if path.name not in ("runs", "results"):
            (copy / path.relative_to(ROOT)).symlink_to(path)
    shutil.copytree(ROOT / "simfl" / "runs" / "results", copy / "simfl" / "runs" / "results")
    for name, edits in NEW.items():
        file = copy / "simfl" / "runs" / "results" / name
        text = file.read_text(encoding="utf-8")
        for old, new in edits.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")
    assert len(NEW) == 2

    world = {**SYNC, "payload": "shadow", "protocols": ["fedavg"]}
    (tmp_path / "world.yaml").write_text(json.dumps(world), encoding="utf-8")
    sweep = study(tmp_path, base=world, grid={}, seeds=1)
    commands = [
        ["run", "world.yaml", "--out", "run"], ["report", "run"], ["report", "run", "--latex"],
        ["sweep", str(sweep), "--jobs", "1", "--out", "sweep"],
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW, json.dumps(commands)], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "80"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    ran, reported, latex, _ = done.stdout.split("$\n")[1:]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    (on_path,) = (r["on_path"] for r in summary["protocols"]["fedavg"]["rounds"])
    assert on_path > 0
    for printed in (ran, reported):
        assert re.search(rf"parties on path +│ +{on_path}\.000", printed)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert ">Parties</th>" in page
    assert f">{on_path}.000</td>" in page
    assert "& Parties" in latex
    assert f"& {on_path}.000" in latex
    with (tmp_path / "sweep" / "sweep.csv").open(newline="", encoding="utf-8") as file:
        values = {row["measure"]: row["value"] for row in csv.DictReader(file)}
    assert float(values["on_path"]) == on_path
