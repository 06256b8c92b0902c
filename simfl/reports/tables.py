"""The tables of a page, from a run's summary: means and spreads over completed rounds, what went wrong."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from simfl.reports.folder import Run
from simfl.results.trace import PHASES

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
    if not listed:
        return Mean(0.0, 0.0, 0)
    spread = statistics.stdev(listed) if len(listed) > 1 else 0.0
    return Mean(statistics.fmean(listed), spread, len(listed))


def headline(run: Run) -> list[dict[str, Any]]:
    """A row a protocol: how long a round takes, what it moves, whom it loses, what it learns."""
    rows = []
    for name, protocol in run.summary["protocols"].items():
        rounds, done = protocol["rounds"], _completed(protocol["rounds"])
        known = [r["aggregate_exact"] for r in rounds if r["aggregate_exact"] is not None]
        staleness = [(int(tau), count) for tau, count in (protocol["staleness"] or {}).items()]
        updates = sum(count for _, count in staleness)
        rows.append(
            {
                "name": name,
                "total": mean(r["end_s"] - r["start_s"] for r in done),
                "done": f"{len(done)} of {len(rounds)}",
                "all_done": len(done) == len(rounds),
                "survivors": _range([r["survivors"] for r in done]),
                "lost": sum(sum(r["dropped"].values()) for r in rounds),
                "up": mean(r["bytes_up"] / 1e6 for r in rounds),
                "down": mean(r["bytes_down"] / 1e6 for r in rounds),
                "exact": f"{sum(known)} of {len(known)}" if known else NONE,
                "all_exact": all(known),
                "staleness": f"{sum(t * c for t, c in staleness) / updates:.2f}" if updates else NONE,
                "accuracy": _accuracy(protocol["final_accuracy"]),
            }
        )
    return rows


def breakdown(run: Run) -> list[dict[str, Any]]:
    """A row for each protocol and drop-out rate: seconds of each phase, as spans and on the critical
    path, and MB of all users together."""
    rows = []
    for name, protocol in run.summary["protocols"].items():
        done = _completed(protocol["rounds"])
        for rate in sorted({r["dropout_rate"] for r in done}, key=lambda rate: rate or 0):
            group = [r for r in done if r["dropout_rate"] == rate]
            rows.append(
                {
                    "name": name,
                    "rate": None if rate is None else f"{rate:.0%}",
                    "rounds": len(group),
                    "span": {p: mean(r["span_s"][p] for r in group) for p in PHASES},
                    "critical": {p: mean(r["critical_s"][p] for r in group) for p in PHASES},
                    "total": mean(r["end_s"] - r["start_s"] for r in group),
                    "up": mean(r["bytes_up"] / 1e6 for r in group),
                    "down": mean(r["bytes_down"] / 1e6 for r in group),
                }
            )
    return rows


def losses(run: Run) -> list[dict[str, Any]]:
    """A row a protocol: users lost in each phase, and what was refused, ignored or thrown away."""
    rows = []
    for name, protocol in run.summary["protocols"].items():
        rounds = protocol["rounds"]
        rows.append(
            {
                "name": name,
                "dropped": {p: sum(r["dropped"][p] for r in rounds) for p in PHASES},
                "aborted": [r for r in rounds if r["status"] != "completed"],
                "refused": _counted(r["refused"] for r in rounds),
                "ignored": _counted(r["ignored"] for r in rounds),
                "stale": sum(r["discarded_stale"] for r in rounds),
                "clipped": sum(r["clipped"] or 0 for r in rounds),
                "wrapped": sum(r["wrapped"] or 0 for r in rounds),
            }
        )
    return rows


def accuracy(run: Run) -> list[tuple[str, list[tuple[float, float]]]]:
    """(protocol, [(seconds of virtual time, accuracy)]) of the rounds after which it was evaluated."""
    return [
        (name, [(r["end_s"], r["accuracy"]) for r in protocol["rounds"] if r["accuracy"] is not None])
        for name, protocol in run.summary["protocols"].items()
    ]


def _completed(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for r in rounds if r["status"] == "completed"]


def _counted(counts: Iterable[dict[str, int]]) -> list[tuple[str, int]]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return sorted(total.items(), key=lambda item: (-item[1], item[0]))


def _range(values: list[int]) -> str:
    if not values:
        return NONE
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def _accuracy(value: float | None) -> str:
    return NONE if value is None else f"{value:.4f}"
