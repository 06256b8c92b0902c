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
from simfl.results.text import write_csv
from simfl.results.trace import PHASES
from simfl.studies.sweep.plan import Plan, told, written
from simfl.studies.sweep.run import Sweep

SELECTIONS = 3

Measure = tuple[str, str]
"""What was measured, and of which phase if of one."""


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
        for protocol, entry in summary["protocols"].items():
            for measure, value in _measures(entry):
                yield Row(cell.point, cell.seed, key, protocol, measure, value)


def _measures(entry: Mapping[str, Any]) -> Iterator[tuple[Measure, float | None]]:
    """What a protocol's part of a summary holds: seconds and bytes are means over its completed rounds."""
    rounds = entry["rounds"]
    done = [r for r in rounds if r["status"] == "completed"]
    mean = entry["mean"]
    yield ("total_s", ""), mean["total_s"]
    for what in ("span_s", "critical_s"):
        for phase in PHASES:
            yield (what, phase), mean[what][phase]
    yield ("accuracy", ""), entry["final_accuracy"]
    yield ("exact", ""), _mean([r["aggregate_exact"] for r in rounds if r["aggregate_exact"] is not None])
    yield ("rounds", ""), len(rounds)
    yield ("completed", ""), len(done)
    yield ("survivors", ""), _mean([r["survivors"] for r in done])
    yield ("users_lost", ""), sum(sum(r["dropped"].values()) for r in rounds)
    for what in ("bytes_up", "bytes_down"):
        yield (what, ""), _mean([r[what] for r in done])
    shares = entry["participation"]
    if shares is not None:
        weak = shares["T_weak"][-1]
        yield ("T_weak", ""), None if weak is None else weak[0]
        yield ("T_strong", ""), shares["T_strong"][-1]
        yield ("F", ""), shares["F"][-1]
        yield ("C", ""), shares["C"][-1]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


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
    out: dict[str, list[Any]] = {"point": [row.point for row in kept]}
    for key in plan.keys:
        out[key] = [plan.points[row.point].get(key) for row in kept]
    return out | {
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
    out: dict[str, list[Any]] = {"point": [point for point, *_ in kept]}
    for key in plan.keys:
        out[key] = [plan.points[point].get(key) for point, *_ in kept]
    return out | {
        "protocol": [protocol for _, protocol, *_ in kept],
        "measure": [measure for _, _, (measure, _), _ in kept],
        "phase": [phase for _, _, (_, phase), _ in kept],
        "seeds": [e.n for *_, e in kept],
        "mean": [e.mean if e.n else None for *_, e in kept],
        "half_95": [e.half for *_, e in kept],
    }


def selections(sweep: Sweep) -> Iterator[tuple[str, dict[str, list[dict[str, Any]]]]]:
    """The first points where not everyone is selected: in words, and entry -> its summaries over seeds."""
    found: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for cell, _, summary in sweep.kept():
        for name, entry in summary["protocols"].items():
            if entry["selection"]["kind"] != "all" and entry["participation"] is not None:
                found.setdefault(cell.point, {}).setdefault(name, []).append(entry)
    for point in list(found)[:SELECTIONS]:
        yield told(sweep.plan.points[point]), found[point]


def write_table(path: Path, table: Mapping[str, Sequence[Any]]) -> None:
    """Columns as a CSV file; what there is no value of is left empty."""
    rows = zip(*table.values(), strict=True)
    texts = (["" if value is None else written(value) for value in row] for row in rows)
    with atomic(path) as file:
        write_csv(file, chain([table], texts))
