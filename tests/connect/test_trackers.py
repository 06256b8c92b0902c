"""Trackers: what they are told, and what each real library reads back from the files of its adapter."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import simfl
from simfl.connect.trackers import VALUES, facts, tracker, values
from simfl.errors import BadInput
from simfl.runs.callbacks import TrackerFeed
from simfl.runs.folder.result import Result
from simfl.runs.results.round_summary import RoundSummary
from simfl.runs.results.summary import Summary
from simfl.scenario.load import load, resolved_yaml
from simfl.scenario.schema import Scenario
from tests.engine.harness import ASYNC, ROOT, SIX, SYNC, run

THREE = {**SIX, "rounds": 3, "protocols": ["fedavg", "lightsecagg"]}


class Kept:
    """A tracker that keeps what it is told."""

    def __init__(self) -> None:
        self.scenarios: list[Scenario] = []
        self.rows: list[tuple[str, RoundSummary]] = []
        self.summaries: list[Summary] = []

    def on_start(self, scenario: Scenario) -> None:
        self.scenarios.append(scenario)

    def on_round(self, protocol: str, row: RoundSummary) -> None:
        assert self.scenarios
        assert not self.summaries
        self.rows.append((protocol, row))

    def on_end(self, summary: Summary) -> None:
        self.summaries.append(summary)


def expected(result: Result) -> dict[str, list[dict[str, float]]]:
    """The values of each protocol's rounds."""
    return {name: [values(r) for r in p.rounds] for name, p in result.protocols.items()}


@pytest.mark.ci(but=["buffer"])
@pytest.mark.parametrize(("changes", "base"), [(THREE, SYNC), ({}, ASYNC)], ids=["rounds", "buffer"])
def test_each_round_is_sent_once(changes: dict[str, Any], base: dict[str, Any]) -> None:
    kept = Kept()
    result = simfl.run(base, changes, callbacks=[kept])
    assert kept.rows == [(name, r) for name, p in result.protocols.items() for r in p.rounds]
    assert [s.name for s in kept.scenarios] == [result.scenario.name]
    assert kept.summaries == [result.summarised()]


@pytest.mark.ci
def test_rounds_are_sent_during_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """And seldom: reading the trace takes at most its share of the run."""
    kept, rows, measured = Kept(), run(THREE).traces["fedavg"], run(THREE).measured["fedavg"]
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    feed = TrackerFeed([kept])
    kept.scenarios.append(run(THREE).scenario)
    told = []
    for number in range(1, 4):
        feed.send("fedavg", rows, measured[:number])
        told.append(len(kept.rows))
        now += 1.5
    assert told == [0, 0, 2]  # the second call comes too soon, and the newest round waits for the next
    feed.send("fedavg", rows, measured, last=True)
    assert len(kept.rows) == 3


def test_a_run_that_fails_ends_as_interrupted() -> None:
    kept = Kept()

    def watch(at: Any) -> None:
        if at.rounds_done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simfl.run(SYNC, THREE, watch=watch, callbacks=[kept])
    (summary,) = kept.summaries
    assert summary.interrupted
    assert kept.rows == [("fedavg", r) for r in summary.protocols["fedavg"].rounds]
    assert len(kept.rows) == 2


@pytest.mark.ci
def test_the_command_tracks_into_the_runs_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard", reason="simfl[tensorboard] is not installed")
    from simfl.cli import main

    (tmp_path / "s.yaml").write_text(resolved_yaml(load(SYNC, {"payload": "shadow"})))
    command = ["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "run"), "--track"]
    with pytest.raises(SystemExit) as left:
        main([*command, "tensorboard"])
    assert left.value.code == 0
    assert list((tmp_path / "run" / "tensorboard" / "fedavg").glob("events.*"))
    with pytest.raises(SystemExit) as left:
        main([*command, "paper"])
    assert left.value.code == 2
    assert "tensorboard" in capsys.readouterr().err


def test_values_and_facts_are_named_as_elsewhere() -> None:
    result = run(THREE)
    (first, *_) = result.protocols["lightsecagg"].rounds
    assert values(first)["span_s_offline"] == first.span_s.offline
    assert values(first)["survivors"] == 6.0
    assert set(values(first)) == set(VALUES) - {"energy_j"}
    assert facts(result.scenario)["users"] == 6


@pytest.mark.ci
def test_tensorboard_reads_its_files_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="simfl[tensorboard] is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = simfl.run(SYNC, THREE, callbacks=[tracker("tensorboard", tmp_path)])
    for name, rounds in expected(result).items():
        read = EventAccumulator(str(tmp_path / "tensorboard" / name))
        read.Reload()
        assert set(read.Tags()["scalars"]) == set(rounds[0])
        for key in rounds[0]:
            events = read.Scalars(key)
            assert [e.step for e in events] == [0, 1, 2]
            assert [e.value for e in events] == pytest.approx([r[key] for r in rounds], rel=1e-6)
            assert [e.wall_time for e in events] == [r["end_s"] for r in rounds]


@pytest.mark.ci
def test_mlflow_reads_its_store_back(tmp_path: Path) -> None:
    pytest.importorskip("mlflow.tracking", reason="simfl[mlflow] is not installed")
    from mlflow.tracking import MlflowClient

    from simfl.connect.trackers.mlflow import MLflow

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    result = simfl.run(SYNC, THREE, callbacks=[MLflow(uri)])
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(result.scenario.name)
    found = {r.info.run_name: r for r in client.search_runs([experiment.experiment_id])}
    assert set(found) == set(result.protocols)
    for name, rounds in expected(result).items():
        own = found[name]
        assert (own.info.status, own.data.tags["seed"]) == ("FINISHED", str(result.scenario.seed))
        assert own.data.metrics["per_aggregate_s"] == result.protocols[name].mean.per_aggregate_s
        for key in rounds[0]:
            history = client.get_metric_history(own.info.run_id, key)
            assert [m.step for m in history] == [0, 1, 2]
            assert [m.value for m in history] == [r[key] for r in rounds]
            assert [m.timestamp for m in history] == [round(r["end_s"] * 1000) for r in rounds]


WANDB = """
import sys
from pathlib import Path
import simfl
from simfl.connect.trackers import tracker
simfl.run(sys.argv[1], callbacks=[tracker("wandb", Path(sys.argv[2]))])
assert "wandb" in sys.modules
"""


@pytest.mark.ci
def test_wandb_reads_its_files_back(tmp_path: Path) -> None:
    """In a process of its own, after which no service of it is left."""
    pytest.importorskip("wandb", reason="simfl[wandb] is not installed")
    (tmp_path / "s.yaml").write_text(resolved_yaml(load(SYNC, THREE)))
    mark = f"SIMFL_TEST_OF={tmp_path}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SIMFL_TEST_OF": str(tmp_path)}
    environment |= {key: str(tmp_path / "home") for key in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR")}
    command = [sys.executable, "-c", WANDB, str(tmp_path / "s.yaml"), str(tmp_path / "run")]
    subprocess.run(command, env=environment, check=True, timeout=300)
    runs = dict(read_wandb(file) for file in (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    rounds = expected(run(THREE))
    assert set(runs) == set(rounds)
    for name, rows in rounds.items():
        assert [
            {key: row[key] for key in values_of} for values_of, row in zip(rows, runs[name], strict=True)
        ] == rows
        assert [row["_step"] for row in runs[name]] == [0, 1, 2]
    deadline = time.monotonic() + 60
    while left := [pid for pid in os.listdir("/proc") if pid.isdigit() and has(pid, mark)]:
        assert time.monotonic() < deadline, f"a service of wandb is left: {left}"
        time.sleep(0.2)


def has(pid: str, mark: str) -> bool:
    """Whether a process has the mark in its environment."""
    try:
        return mark.encode() in Path("/proc", pid, "environ").read_bytes().split(b"\0")
    except OSError:
        return False


BLOCK = 32_768  # of a file of wandb, which is a log of LevelDB behind 7 bytes of its own


def records(file: Path) -> Iterator[bytes]:
    """Yield the records; a fragment is whole (1), first (2), middle (3) or last (4)."""
    content, at, parts = file.read_bytes(), 7, b""
    assert content.startswith(b":W&B")
    while at + 7 <= len(content):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


def read_wandb(file: Path) -> tuple[str, list[dict[str, float]]]:
    """The name and the history of an offline run, by wandb's own messages."""
    from wandb.proto.wandb_internal_pb2 import Record

    name, rows = "", []
    for data in records(file):
        record = Record.FromString(data)
        name = record.run.display_name or name
        if record.HasField("history"):
            items = record.history.item
            rows.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in items})
    return name, rows


@pytest.mark.ci
def test_the_run_is_the_same_with_and_without(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="simfl[tensorboard] is not installed")
    simfl.run(SYNC, THREE, out=tmp_path / "without")
    simfl.run(SYNC, THREE, out=tmp_path / "with", callbacks=[tracker("tensorboard", tmp_path / "with")])
    for name in ("trace.jsonl", "summary.json", "breakdown.csv", "metrics.jsonl"):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "module", "library"),
    [
        ("tensorboard", "tensorboard.summary.writer.event_file_writer", "TensorBoard needs tensorboard"),
        ("wandb", "wandb", "WandB needs wandb"),
        ("mlflow", "mlflow.tracking", "MLflow needs mlflow"),
    ],
)
def test_an_absent_library_is_named_with_its_extra(
    name: Any, module: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadInput, match=rf"^{library}: pip install 'simfl\[{name}\]'$"):
        tracker(name, tmp_path)
