"""The content of a page's tables, from a run's summary: means over completed rounds, and what went wrong."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from simfl.reports.folder import Run
from simfl.results import summary
from simfl.results.columns import Column, Measure, Place, at
from simfl.results.summary import ProtocolSummary, RoundSummary

NO_VALUE = "–"


@dataclass(frozen=True)
class Mean:
    """Mean and standard deviation of `count` values; there is no spread of one."""

    mean: float
    sd: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.count else NO_VALUE


def mean(values: Iterable[float]) -> Mean:
    """The mean of some values; zero of none."""
    listed = list(values)
    spread = statistics.stdev(listed) if len(listed) > 1 else 0.0
    return Mean(summary.mean(listed) or 0.0, spread, len(listed))


@dataclass(frozen=True)
class BreakdownRow:
    """A protocol's completed rounds at one drop-out rate: their part of its summary, and its means."""

    name: str
    rate: str | None
    part: ProtocolSummary
    means: dict[Measure, Mean]


def breakdown(run: Run) -> list[BreakdownRow]:
    """A row for each protocol and drop-out rate."""
    rows = []
    for name, protocol in run.summary.protocols.items():
        for rate in sorted({r.dropout_rate for r in protocol.completed}, key=lambda rate: rate or 0):
            part = protocol.at(rate)
            means = {column.measure: mean(column.read(part)) for column in at("phases", [part])}
            rows.append(BreakdownRow(name, None if rate is None else f"{rate:.0%}", part, means))
    return rows


def headings(shown: list[Column], place: Place) -> list[tuple[str, list[str]]]:
    """The headings of a table, each with the phases that are below it."""
    out: dict[str, list[str]] = {}
    for column in shown:
        phases = out.setdefault(getattr(column, place), [])
        phases += [column.phase] * bool(column.phase)
    return list(out.items())


def reasons(run: Run) -> dict[str, dict[str, list[Any]]]:
    """Protocol -> its aborted rounds, and (reason, count) of refused and of ignored messages."""
    return {
        name: {
            "aborted": [r for r in p.rounds if not r.completed],
            "refused": _summed(r.refused for r in p.rounds),
            "ignored": _summed(r.ignored for r in p.rounds),
        }
        for name, p in run.summary.protocols.items()
    }


def _summed(counts: Iterable[dict[str, int]]) -> list[tuple[str, int]]:
    total = sum(map(Counter, counts), Counter[str]())
    return sorted(total.items(), key=lambda item: (-item[1], item[0]))


def evaluated(run: Run) -> dict[str, list[tuple[RoundSummary, float]]]:
    """Protocol -> the rounds after which it was evaluated, each with its accuracy."""
    return {
        name: [(r, r.accuracy) for r in p.rounds if r.accuracy is not None]
        for name, p in run.summary.protocols.items()
    }
