"""What a run came to, and its folder."""

from __future__ import annotations

import csv
import json
import os
import platform
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import simfl
from simfl import metrics, trace
from simfl.engine.virtual import NS
from simfl.scenario.load import resolved_yaml
from simfl.scenario.schema import Scenario
from simfl.trace import PHASES, SERVER, Trace

SCHEMA = 2


@dataclass(frozen=True)
class Measurement:
    """What a round's content showed; None where there is no content or it was not asked for."""

    exact: bool | None = None
    wrapped: int | None = None
    clipped: int | None = None
    accuracy: float | None = None
    loss: float | None = None
    rate: float | None = None


@dataclass
class Result:
    """A run: the resolved scenario, the trace of each protocol, and what its content showed.

    `interrupted` says that rounds are missing because the run was stopped.
    """

    scenario: Scenario
    traces: dict[str, Trace] = field(default_factory=dict)
    measured: dict[str, list[Measurement]] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def rounds(self) -> dict[str, list[metrics.Round]]:
        """The finished rounds of each protocol."""
        return {name: metrics.rounds(rows)[: len(self.measured[name])] for name, rows in self.traces.items()}

    @property
    def summary(self) -> dict[str, Any]:
        """The content of `summary.json`, schema 1; times in seconds of virtual time."""
        s = self.scenario
        return {
            "schema": SCHEMA,
            "scenario": s.name,
            "seed": s.seed,
            "clock": s.clock.kind,
            "payload": s.payload,
            "interrupted": self.interrupted,
            "versions": versions(),
            "protocols": {
                name: _protocol(rounds, self.measured[name]) for name, rounds in self.rounds.items()
            },
        }

    def write(self, folder: Path) -> None:
        """Write the run's files; each appears whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        summary = self.summary
        with atomic(folder / "trace.jsonl") as file:
            file.writelines(trace.lines(self.traces))
        with atomic(folder / "metrics.jsonl") as file:
            file.writelines(json.dumps(row) + "\n" for row in _learning_rows(summary))
        with atomic(folder / "breakdown.csv") as file:
            csv.writer(file).writerows(breakdown(self.rounds))
        with atomic(folder / "resolved.yaml") as file:
            file.write(resolved_yaml(self.scenario))
        with atomic(folder / "summary.json") as file:
            file.write(json.dumps(summary, indent=2) + "\n")


def versions() -> dict[str, str]:
    """The versions that results may depend on."""
    packages = ("simpy", "numpy", "torch", "cryptography")
    own = {"simfl": simfl.__version__, "python": platform.python_version()}
    return own | {name: version(name) for name in packages}


def _protocol(rounds: list[metrics.Round], measured: list[Measurement]) -> dict[str, Any]:
    entries = [_round(r, m) for r, m in zip(rounds, measured, strict=True)]
    done = [e for e in entries if e["status"] == "completed"]
    accuracies = [e["accuracy"] for e in entries if e["accuracy"] is not None]
    mean = {
        "span_s": {phase: _mean(e["span_s"][phase] for e in done) for phase in PHASES},
        "critical_s": {phase: _mean(e["critical_s"][phase] for e in done) for phase in PHASES},
        "total_s": _mean(e["end_s"] - e["start_s"] for e in done),
    }
    staleness: dict[str, int] | None = None
    members = [member for r in rounds for member in r.members]
    if any(about for _, about, _ in members):
        counts: dict[int, int] = {}
        for _, _, tau in members:
            counts[tau] = counts.get(tau, 0) + 1
        staleness = {str(tau): counts[tau] for tau in sorted(counts)}
    return {
        "rounds": entries,
        "mean": mean,
        "final_accuracy": accuracies[-1] if accuracies else None,
        "staleness": staleness,
    }


def _round(r: metrics.Round, m: Measurement) -> dict[str, Any]:
    critical = dict.fromkeys(PHASES, 0)
    kinds = dict.fromkeys(("compute", "network", "wait"), 0)
    for (phase, _, kind), ns in r.critical.items():
        critical[phase] += ns
        kinds[kind] += ns
    return {
        "index": r.index,
        "status": "completed" if r.reason is None else "aborted",
        "reason": r.reason,
        "start_s": r.start / NS,
        "end_s": r.end / NS,
        "selected": r.selected,
        "survivors": len(r.members),
        "dropped": {phase: r.dropped[phase] for phase in PHASES},
        "dropout_rate": m.rate,
        "span_s": {phase: ns / NS for phase, ns in r.span.items()},
        "critical_s": {phase: ns / NS for phase, ns in critical.items()},
        "critical_kinds_s": {kind: ns / NS for kind, ns in kinds.items()},
        "aggregate_exact": m.exact,
        "wrapped": m.wrapped,
        "clipped": m.clipped,
        "bytes_up": r.bytes_up,
        "bytes_down": r.bytes_down,
        "ignored": dict(r.ignored),
        "discarded_stale": r.discarded,
        "refused": dict(r.refused),
        "reliable": r.reliable,
        "private": r.private,
        "accuracy": m.accuracy,
        "loss": m.loss,
    }


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


def _learning_rows(summary: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, protocol in summary["protocols"].items():
        for r in protocol["rounds"]:
            keys = ("accuracy", "loss", "aggregate_exact", "wrapped", "clipped")
            yield {"protocol": name, "round": r["index"], "time_s": r["end_s"]} | {k: r[k] for k in keys}


def breakdown(rounds: dict[str, list[metrics.Round]]) -> Iterator[tuple[Any, ...]]:
    """The rows of `breakdown.csv`: spans by phase, and the critical path by phase, party and kind."""
    yield "protocol", "round", "measure", "phase", "party", "kind", "seconds"
    for name, listed in rounds.items():
        for r in listed:
            for phase, ns in r.span.items():
                yield name, r.index, "span", phase, "", "", f"{ns / NS:.9f}"
            for (phase, party, kind), ns in sorted(r.critical.items()):
                who = "server" if party == SERVER else party
                yield name, r.index, "critical", phase, who, kind, f"{ns / NS:.9f}"


@contextmanager
def atomic(path: Path) -> Iterator[IO[str]]:
    """A text file that takes its place only when it is whole."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            yield file
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
