"""A sweep as tables: a row for each value of each cell, and their means with 95 % intervals over seeds.

The interval of n values with mean m and standard deviation s (n - 1 in its denominator) is
m ± t s / sqrt(n), with t the 97.5 % quantile of Student's t of n - 1 degrees of freedom. A single value
has none.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from scipy.special import stdtrit

from simfl.folder.result import atomic
from simfl.results.columns import Measure, at
from simfl.results.summary import ProtocolSummary
from simfl.results.text import write_csv
from simfl.studies.sweep.plan import Plan, told, written
from simfl.studies.sweep.run import Sweep

SELECTIONS = 3


@dataclass(frozen=True)
class Row:
    """One value of one cell; None where there is none."""

    point: int
    seed: int
    cell: str
    protocol: str
    measure: Measure
    value: float | None


@dataclass(frozen=True)
class Estimate:
    """A mean of n values, and half of its 95 % interval if there are several."""

    mean: float
    half: float | None
    n: int


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of at least one value with its interval."""
    n, mean = len(values), statistics.fmean(values)
    if n == 1:
        return Estimate(mean, None, 1)
    t = float(stdtrit(n - 1, 0.975))
    return Estimate(mean, t * statistics.stdev(values) / math.sqrt(n), n)


def rows(sweep: Sweep) -> Iterator[Row]:
    """The values of all cells that did not fail, in the plan's order."""
    for cell, key, summary in sweep.kept():
        for name, protocol in summary.protocols.items():
            for column in at("csv", [protocol]):
                yield Row(cell.point, cell.seed, key, name, column.measure, column.number(protocol))


Group = tuple[int, str]
"""A point and a protocol."""


def means(listed: Iterable[Row]) -> dict[Group, dict[Measure, Estimate | None]]:
    """Of each point and protocol, every measure over its seeds; None where no seed has a value."""
    values: dict[Group, dict[Measure, list[float]]] = {}
    for row in listed:
        kept = values.setdefault((row.point, row.protocol), {}).setdefault(row.measure, [])
        if row.value is not None:
            kept.append(row.value)
    return {
        group: {measure: estimate(kept) if kept else None for measure, kept in measures.items()}
        for group, measures in values.items()
    }


def columns(plan: Plan, listed: Iterable[Row]) -> dict[str, list[Any]]:
    """The rows as columns by name: point, what varies, seed, cell, protocol, measure, phase, value."""
    kept = list(listed)
    return _placed(plan, [row.point for row in kept]) | {
        "seed": [row.seed for row in kept],
        "cell": [row.cell for row in kept],
        "protocol": [row.protocol for row in kept],
        "measure": [row.measure[0] for row in kept],
        "phase": [row.measure[1] for row in kept],
        "value": [None if row.value is None else float(row.value) for row in kept],
    }


def mean_columns(
    plan: Plan, groups: Mapping[Group, Mapping[Measure, Estimate | None]]
) -> dict[str, list[Any]]:
    """`means` as columns by name: point, what varies, protocol, measure, phase, seeds, mean, half_95."""
    kept = [
        (point, protocol, measure, found or Estimate(math.nan, None, 0))
        for (point, protocol), measures in groups.items()
        for measure, found in measures.items()
    ]
    return _placed(plan, [point for point, *_ in kept]) | {
        "protocol": [protocol for _, protocol, *_ in kept],
        "measure": [measure for _, _, (measure, _), _ in kept],
        "phase": [phase for _, _, (_, phase), _ in kept],
        "seeds": [e.n for *_, e in kept],
        "mean": [e.mean if e.n else None for *_, e in kept],
        "half_95": [e.half for *_, e in kept],
    }


def _placed(plan: Plan, points: list[int]) -> dict[str, list[Any]]:
    """Columns of points, and of what varies."""
    varied = {key: [plan.points[point].get(key) for point in points] for key in plan.keys}
    return {"point": points, **varied}


def selections(sweep: Sweep) -> Iterator[tuple[str, dict[str, list[ProtocolSummary]]]]:
    """The first points where not everyone is selected: in words, and entry -> its summaries over seeds."""
    found: dict[int, dict[str, list[ProtocolSummary]]] = {}
    for cell, _, summary in sweep.kept():
        for name, entry in summary.protocols.items():
            if entry.chosen:
                found.setdefault(cell.point, {}).setdefault(name, []).append(entry)
    for point in list(found)[:SELECTIONS]:
        yield told(sweep.plan.points[point]), found[point]


def write_table(path: Path, table: Mapping[str, Sequence[Any]]) -> None:
    """Columns as a CSV file; what there is no value of is left empty."""
    rows = zip(*table.values(), strict=True)
    texts = (["" if value is None else written(value) for value in row] for row in rows)
    with atomic(path) as file:
        write_csv(file, chain([table], texts))
