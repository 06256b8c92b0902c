"""The tables of a page, from a run's summary: means and spreads over completed rounds, what went wrong."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from simfl.reports.folder import Run
from simfl.results import summary
from simfl.results.columns import Column, Place, at

NONE = "–"
"""Where there is nothing to show."""


@dataclass(frozen=True)
class Mean:
    """Mean and standard deviation of `count` values; there is no spread of one."""

    mean: float
    sd: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.count else NONE


def mean(values: Iterable[float]) -> Mean:
    """Of nothing, zero with a count of zero."""
    listed = list(values)
    spread = statistics.stdev(listed) if len(listed) > 1 else 0.0
    return Mean(summary.mean(listed) or 0.0, spread, len(listed))


def headings(shown: list[Column], place: Place) -> list[tuple[str, list[str]]]:
    """The headings of a table, each with the phases that are below it."""
    out: dict[str, list[str]] = {}
    for column in shown:
        phases = out.setdefault(getattr(column, place), [])
        phases += [column.phase] * bool(column.phase)
    return list(out.items())


def breakdown(run: Run) -> list[dict[str, Any]]:
    """A row for each protocol and drop-out rate of its completed rounds: their part of its summary, and
    means by `Measure`, such as the seconds of each phase."""
    rows = []
    for name, protocol in run.summary.protocols.items():
        for rate in sorted({r.dropout_rate for r in protocol.completed}, key=lambda rate: rate or 0):
            part = protocol.at(rate)
            means = {column.measure: mean(column.read(part)) for column in at("phases", [part])}
            told = None if rate is None else f"{rate:.0%}"
            rows.append({"name": name, "rate": told, "part": part, "means": means})
    return rows


def reasons(run: Run) -> dict[str, dict[str, list[Any]]]:
    """Of each protocol the rounds that were aborted, and why messages were refused and ignored how often."""
    return {
        name: {
            "aborted": [r for r in p.rounds if not r.completed],
            "refused": _counted(r.refused for r in p.rounds),
            "ignored": _counted(r.ignored for r in p.rounds),
        }
        for name, p in run.summary.protocols.items()
    }


def accuracy(run: Run) -> list[tuple[str, list[tuple[float, float]]]]:
    """(protocol, [(seconds of virtual time, accuracy)]) of the rounds after which it was evaluated."""
    return [
        (name, [(r.end_s, r.accuracy) for r in p.rounds if r.accuracy is not None])
        for name, p in run.summary.protocols.items()
    ]


def _counted(counts: Iterable[dict[str, int]]) -> list[tuple[str, int]]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return sorted(total.items(), key=lambda item: (-item[1], item[0]))
