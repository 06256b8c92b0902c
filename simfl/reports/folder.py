"""A run's folder, read back: everything that a report is made from.

Law: what does not fit together is refused with the file's name, so a report never shows half a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simfl import metrics
from simfl.errors import BadInput
from simfl.scenario.schema import Scenario
from simfl.trace import PHASES, Begin, Step, Trace, read

SCHEMA = 2
"""The schema of `summary.json` that reports are made from."""

NS = 10**9

_RUN = {"scenario": str, "seed": int, "clock": str, "payload": str, "interrupted": bool, "versions": dict}
_PROTOCOL = {"rounds": list, "selection": dict}
_ROUND = {
    "index": int, "status": str, "start_s": float, "end_s": float, "selected": int, "survivors": int,
    "dropped": dict, "span_s": dict, "critical_s": dict, "ignored": dict, "refused": dict, "bytes_up": int,
    "bytes_down": int, "discarded_stale": int,
}  # fmt: skip
_FREE = (
    "reason", "dropout_rate", "aggregate_exact", "wrapped", "clipped", "updates_clipped", "accuracy", "loss",
    "reliable", "private",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A run as its folder has it; `rounds` are its finished rounds, as many as the summary has."""

    folder: Path
    scenario: Scenario
    text: str
    summary: dict[str, Any]
    traces: dict[str, Trace]
    rounds: dict[str, list[metrics.Round]]

    @property
    def buffered(self) -> bool:
        """Whether it is an asynchronous run, whose rounds are aggregations."""
        return self.scenario.buffer is not None

    @property
    def unit(self) -> str:
        """What a round is called."""
        return "aggregation" if self.buffered else "round"


def open_run(folder: Path, scenario: Scenario, text: str) -> Run:
    """The run in a folder. scenario, text: its `resolved.yaml`, loaded and as it is.

    Raises:
        BadInput: a file is missing, is not what a run writes, or the files are not of one run.
    """
    summary = _summary(folder / "summary.json")
    traces = read(folder / "trace.jsonl")
    if list(traces) != list(summary["protocols"]):
        told = f"{', '.join(traces) or 'none'}, and summary.json {', '.join(summary['protocols']) or 'none'}"
        raise BadInput(f"{folder}: not the files of one run: trace.jsonl has the protocols {told}")
    rounds = {}
    for name, rows in traces.items():
        _check_causes(folder / "trace.jsonl", name, rows)
        expected = summary["protocols"][name]["rounds"]
        rounds[name] = metrics.rounds(rows)[: len(expected)]
        found = [(r.index, r.start, r.end) for r in rounds[name]]
        if found != [(e["index"], round(e["start_s"] * NS), round(e["end_s"] * NS)) for e in expected]:
            raise BadInput(f"{folder}: not the files of one run: {name}'s rounds differ in trace and summary")
    return Run(folder, scenario, text, summary, traces, rounds)


def _summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read ({error})") from None
    schema = summary.get("schema") if isinstance(summary, dict) else None
    if schema != SCHEMA:
        raise BadInput(f"{path}: schema {schema!r}; reports are made from schema {SCHEMA}: run it again")
    _expect(path, summary, "", _RUN | {"protocols": dict})
    for name, protocol in summary["protocols"].items():
        _expect(path, protocol, f"protocols.{name}", _PROTOCOL, ("final_accuracy", "staleness", "training"))
        _expect(path, protocol, f"protocols.{name}", {}, ("participation",))
        for index, entry in enumerate(protocol["rounds"]):
            where = f"protocols.{name}.rounds[{index}]"
            _expect(path, entry, where, _ROUND, _FREE)
            for key in ("dropped", "span_s", "critical_s"):
                _expect(path, entry[key], f"{where}.{key}", {}, PHASES)
    loaded: dict[str, Any] = summary
    return loaded


def _expect(
    path: Path, value: Any, where: str, kinds: Mapping[str, type], free: tuple[str, ...] = ()
) -> None:
    """`value` is a mapping with these keys, of these kinds or of any."""
    if not isinstance(value, dict):
        raise BadInput(f"{path}: {where} is not a mapping")
    for key in (*kinds, *free):
        place = f"{where}.{key}".removeprefix(".")
        if key not in value:
            raise BadInput(f"{path}: {place} is missing")
        if key in kinds and not isinstance(value[key], (float, int) if kinds[key] is float else kinds[key]):
            raise BadInput(f"{path}: {place} is {value[key]!r}, not of kind {kinds[key].__name__}")


def _check_causes(path: Path, name: str, rows: Trace) -> None:
    """Causes lie before what they caused, and every round that something is of has begun."""
    begun: set[int] = set()
    buffered = any(isinstance(row, Begin) and row.buffered for row in rows)
    for number, row in enumerate(rows):
        if isinstance(row, Begin):
            begun.add(row.round)
        earlier = (getattr(row, "cause", -1), getattr(row, "previous", -1))
        if not all(-1 <= cause < number for cause in earlier):
            raise BadInput(f"{path}: {name}, row {number} has a cause that is not an earlier row")
        if not buffered and getattr(row, "round", None) not in begun and hasattr(row, "round"):
            raise BadInput(f"{path}: {name}, row {number} is of a round that has not begun")
        if isinstance(row, Step) and not row.segments:
            raise BadInput(f"{path}: {name}, row {number} is a step without segments")
