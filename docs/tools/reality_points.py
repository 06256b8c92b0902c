"""Configurations of docs/reality.md: real and simulated durations, and statistics of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import nan, sqrt
from statistics import fmean, median
from typing import Any, NamedTuple

from benchmarks.kernel_links import SERVER_QUEUE_S
from benchmarks.live_grid import (
    Calibration,
    Cell,
    cells,
    read,
    simulated,
)
from simfl.runs.results.statistics import Estimate, estimate
from simfl.trace.rows import PHASES

CALLED = {
    "wire": "kernel, round trips",
    "kernel": "kernel, no round trips",
    "user": "user space",
}
COLOURS = {"wire": "#b2182b", "kernel": "#2166ac", "user": "#666666"}
WAYS = ("a priori", "calibrated")
BOUNDS = {"a priori": (0.02, 0.07), "calibrated": (0.01, 0.04)}
"""The aims: the median and the largest error of totals, as fractions."""
PHASE_BOUND, LEAST_SHARE = 0.10, 0.1
TAU_BOUND, APART = 0.93, 0.02
WEAKEST = 12  # configurations in the first table


class Point(NamedTuple):
    """A configuration: of a run in rounds one round, of a buffered run the mean aggregation.

    Attributes:
        cell: The live runs' scenario.
        lost: The fraction of users who drop out.
        real: The total of each run [s].
        simulated: The total [s], by way of simulation.
        spans: By phase of a tenth of the total or more: its real mean, and by way its simulated span [s].
        overrun: The largest overrun of its runs, as a fraction.
    """

    cell: Cell
    lost: float
    real: tuple[float, ...]
    simulated: dict[str, float]
    spans: dict[str, tuple[float, dict[str, float]]]
    overrun: float

    @property
    def links(self) -> str:
        return self.cell.links

    @property
    def found(self) -> Estimate:
        return estimate(self.real)

    def error(self, way: str) -> float:
        return self.simulated[way] / self.found.mean - 1


Stored = Mapping[str, Any]
"""By the name of a cell: the results of both ways of simulation, in the form of `live_grid.kept`."""


def played() -> list[Cell]:
    """Return the cells with stored runs."""
    return [cell for cell in cells() if read(cell.name)]


def is_short(cell: Cell) -> bool:
    """Return True for a cell whose queue at the server is short: it has tables of its own."""
    return cell.queue_s < SERVER_QUEUE_S


def calibration_of(cell: Cell) -> Calibration:
    ping = read(f"ping-{cell.links}-{cell.bandwidth.replace('/', '_')}")
    return Calibration(ping["latency_s"], ping["overhead_s"])


def simulate(cell: Cell) -> dict[str, Any]:
    """Simulate a cell in both ways."""
    return {"a priori": simulated(cell), "calibrated": simulated(cell, calibration_of(cell))}


def points(stored: Stored, short: bool = False) -> list[Point]:
    """Return the configurations, with the usual queue at the server or with a short one."""
    own = [cell for cell in played() if is_short(cell) == short]
    return [point for cell in own for point in _points(cell, stored[cell.name])]


def _points(cell: Cell, ways: Mapping[str, Any]) -> Iterator[Point]:
    runs = read(cell.name)["runs"]
    overrun = max(run["figures"]["overrun"] for run in runs)
    listed = {way: ways[way]["aggregates"] for way in WAYS}
    if cell.buffered:
        real = tuple(fmean(one["total_s"] for one in run["aggregates"]) for run in runs)
        means = {way: fmean(one["total_s"] for one in own) for way, own in listed.items()}
        yield Point(cell, cell.lost[0], real, means, {}, overrun)
        return
    for k, lost in enumerate(cell.lost):
        own = [run["aggregates"][k] for run in runs]
        real = tuple(one["total_s"] for one in own)
        spans = {}
        for phase in PHASES:
            mean = fmean(one["span_s"].get(phase, 0.0) for one in own)
            if mean >= LEAST_SHARE * fmean(real):
                spans[phase] = (mean, {way: listed[way][k]["span_s"].get(phase, 0.0) for way in WAYS})
        totals = {way: listed[way][k]["total_s"] for way in WAYS}
        yield Point(cell, lost, real, totals, spans, overrun)


# -- statistics
def tau(pairs: Sequence[tuple[float, float]]) -> float:
    """Return Kendall's tau-b of (real, simulated), over all pairs of them.

    >>> tau([(1, 1), (2, 3), (3, 2)]), tau([(1, 1), (2, 2), (3, 3)])
    (0.3333333333333333, 1.0)
    """
    both = [(_sign(a[0] - b[0]), _sign(a[1] - b[1])) for a, b in combinations(pairs, 2)]
    score = sum(x * y for x, y in both)
    norm = sqrt(sum(x * x for x, _ in both) * sum(y * y for _, y in both))
    return score / norm if norm else nan


def in_order(pairs: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """Count the pairs in order among those more than 2 % apart in reality, and all of the latter.

    >>> in_order([(1.0, 1.0), (1.01, 0.9), (2.0, 0.95)])
    (1, 2)
    """
    apart = [(a, b) for a, b in combinations(pairs, 2) if abs(a[0] - b[0]) > APART * min(a[0], b[0])]
    return sum((a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in apart), len(apart)


def _sign(x: float) -> int:
    return (x > 0) - (x < 0)


def quantile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that this share of them does not exceed.

    >>> quantile([4, 1, 3, 2], 0.9), quantile([4, 1, 3, 2], 0.5)
    (4, 2)
    """
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def errors(found: Iterable[Point], way: str) -> list[float]:
    return [abs(point.error(way)) for point in found]


def phase_errors(found: Iterable[Point], way: str, phase: str = "") -> list[float]:
    return [
        ways[way] / real - 1
        for point in found
        for name, (real, ways) in point.spans.items()
        if phase in ("", name)
    ]


def groups(found: Sequence[Point]) -> Iterator[tuple[str, bool, list[Point]]]:
    """Yield links, whether they are of buffered runs, and the points; the weakest kind of links first."""
    for links in CALLED:
        for buffered in (False, True):
            own = [p for p in found if p.links == links and p.cell.buffered == buffered]
            if own:
                yield links, buffered, own


def pairs_of(found: Iterable[Point], way: str) -> list[tuple[float, float]]:
    return [(point.found.mean, point.simulated[way]) for point in found]


def percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def three_of(values: Sequence[float]) -> str:
    return " / ".join(f"{100 * v:.1f}" for v in (median(values), quantile(values, 0.9), max(values))) + " %"


def kind_of(links: str, buffered: bool) -> str:
    return f"{CALLED[links]}; {'buffered' if buffered else 'rounds'}"
