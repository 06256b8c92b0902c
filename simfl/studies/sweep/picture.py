"""A sweep as what its page shows: axes, measures, points, the best of them and the Pareto front."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simfl.runs.results.columns import Column, Measure, columns_of
from simfl.runs.results.drift import warning
from simfl.runs.results.statistics import Estimate
from simfl.studies.sweep.plan import Cell, plain
from simfl.studies.sweep.run import Sweep
from simfl.studies.sweep.store import LINKS
from simfl.studies.sweep.tables import means, rows

BETTER_HIGH = ("accuracy", "completed", "exact", "T_weak", "T_strong", "C", "updates_per_hour")
CIRCUMSTANCES = (
    "population", "network", "server", "detect", "dropout", "profile", "clock",
    "learning.dataset", "learning.data", "learning.partition",
)  # fmt: skip
"""Blocks of a scenario that nobody chooses; entries are compared where these are alike."""
LABEL_MOST, MAX_NAME = 40, 150  # signs of a value in a label, and of a folder's name


@dataclass(frozen=True)
class Axis:
    """A key that varies, with its values in the study's order."""

    key: str
    label: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """A protocol at a point: its means, the users who may collude (T), and the folder of its first cell.
    where: the label of what is not chosen at that point."""

    point: int
    protocol: str
    label: str
    T: int
    folder: str
    means: Mapping[Measure, Estimate | None]
    where: str = ""

    def mean(self, key: str, phase: str = "") -> float | None:
        found = self.means.get((key, phase))
        return None if found is None else found.mean

    @property
    def megabytes(self) -> float | None:
        up, down = self.mean("bytes_up"), self.mean("bytes_down")
        return None if up is None or down is None else (up + down) / 1e6


@dataclass(frozen=True)
class Picture:
    """entries: in the plan's order. places: of each point its place on each axis, None off it. moved: a
    warning of the machine's speed."""

    name: str
    seeds: int
    axes: tuple[Axis, ...]
    measures: tuple[Column, ...]
    entries: tuple[Entry, ...]
    places: tuple[tuple[int | None, ...], ...]
    moved: str | None = None


def picture(sweep: Sweep) -> Picture:
    """Return what a page shows of a sweep's finished cells."""
    plan = sweep.plan
    first: dict[int, tuple[Cell, str]] = {}
    drifts = []
    for cell, key, summary in sweep.kept():
        first.setdefault(cell.point, (cell, key))
        drifts.append(summary.drift)
    shorts, names = short(plan.keys), folder_names(sweep)
    axes = tuple(Axis(key, shorts[key], _values(plan.points, key)) for key in plan.keys)
    entries = []
    for (point, protocol), found in means(rows(sweep)).items():
        cell, key = first[point]
        masked = cell.scenario.protocols[protocol].offline
        T = cell.scenario.params(protocol).T if masked else 0
        words = label(plan.points[point], shorts)
        given = {key: value for key, value in plan.points[point].items() if is_circumstance(key)}
        where = label(given, shorts)
        entries.append(Entry(point, protocol, words, T, f"{LINKS}/{names[key]}", found, where))
    known = [c for c in columns_of("csv") if any(e.means.get(c.measure) is not None for e in entries)]
    places = tuple(
        tuple(axis.values.index(plain(p[axis.key])) if axis.key in p else None for axis in axes)
        for p in plan.points
    )
    seeds = len({cell.seed for cell in plan.cells})
    return Picture(plan.name, seeds, axes, tuple(known), tuple(entries), places, warning(drifts))


def is_circumstance(key: str) -> bool:
    """Tell whether a dotted key is one of the world, and not of a design.

    >>> is_circumstance("dropout.rate"), is_circumstance("privacy.T")
    (True, False)
    """
    return f"{key}.".startswith(tuple(f"{block}." for block in CIRCUMSTANCES))


def by_circumstances(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Return the entries of each world, by the label of its circumstances."""
    worlds: dict[str, list[Entry]] = {}
    for entry in entries:
        worlds.setdefault(entry.where, []).append(entry)
    return worlds


def widest(found: Picture) -> tuple[int, int]:
    """Return the two axes that the most points differ in, for a heat map; one alone twice."""
    numbers = range(len(found.axes))
    pairs = [(r, c) for r in numbers for c in numbers if r < c] or [(0, 0)]
    return max(pairs, key=lambda pair: len({(p[pair[0]], p[pair[1]]) for p in found.places}))


def _values(points: Iterable[Mapping[str, Any]], key: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(plain(point[key]) for point in points if key in point))


def short(keys: Sequence[str]) -> dict[str, str]:
    """Return the last word of each dotted key, or the whole key where two end alike.

    >>> short(["population.users", "dropout.rate"])
    {'population.users': 'users', 'dropout.rate': 'rate'}
    """
    ends = [key.rpartition(".")[2] for key in keys]
    return {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}


def label(point: Mapping[str, Any], shorts: Mapping[str, str]) -> str:
    """Return a point in short words, its single values if it has any.

    >>> label({"dropout.rate": 0.1, "privacy": {"T": 2}}, short(["dropout.rate", "privacy"]))
    'rate=0.1'
    """
    single = {k: v for k, v in point.items() if not isinstance(v, dict | list)} or point
    return ", ".join(f"{shorts[key]}={plain(value)[:LABEL_MOST]}" for key, value in single.items())


def folder_names(sweep: Sweep) -> dict[str, str]:
    """Return a name for each cell's folder, made of its values: key -> name, no two alike."""
    plan = sweep.plan
    shorts = short(plan.keys)
    names: dict[str, str] = {}
    taken: set[str] = set()
    for cell, key in zip(plan.cells, sweep.keys, strict=True):
        name = folder_name(label(plan.points[cell.point], shorts), cell.seed)
        plain_name = name not in taken and len(name) < MAX_NAME
        names[key] = name if plain_name else f"{name[:MAX_NAME]}-{key[:12]}"
        taken.add(name)
    return names


def folder_name(words: str, seed: int) -> str:
    """Return a name made of a cell's values, with no sign that a file system might refuse.

    >>> folder_name("rate=0.1, model={x: /y}", 3)
    'rate=0.1,model=_x_y_,seed=3'
    """
    return re.sub(r"[^\w=.,+-]+", "_", f"{words.replace(', ', ',')},seed={seed}".lstrip(","))


def front(entries: Iterable[Entry]) -> list[Entry]:
    """Return those that no other beats: at most its time and bytes per aggregate and at least its T, of which
    one is better. Entries without an aggregate are left out; the fastest come first."""
    known = [(e, e.mean("per_aggregate_s"), e.megabytes, e.T) for e in entries]
    costs = [(e, (s, mb, -T)) for e, s, mb, T in known if s is not None and mb is not None]

    def beaten(cost: tuple[float, float, int]) -> bool:
        others = (other for _, other in costs if other != cost)
        return any(all(a <= b for a, b in zip(other, cost, strict=True)) for other in others)

    return [e for e, cost in sorted(costs, key=lambda pair: pair[1]) if not beaten(cost)]


def best(found: Picture) -> list[tuple[Column, Entry, Estimate]]:
    """Return for each measure of whole rounds with a better end the best entry of each world, where entries
    differ."""
    worlds = by_circumstances(found.entries).values()
    return [row for entries in worlds for row in _best_of(entries, found.measures)]


def _best_of(entries: Sequence[Entry], measures: Iterable[Column]) -> list[tuple[Column, Entry, Estimate]]:
    out = []
    for column in (c for c in measures if not c.phase and c.key != "survivors"):
        known = [(e, value) for e in entries if (value := e.means.get(column.measure)) is not None]
        ranked = column.reduction == "mean" or column.key in BETTER_HIGH
        if ranked and len({value.mean for _, value in known}) > 1:
            sign = -1 if column.key in BETTER_HIGH else 1
            entry, value = min(known, key=lambda pair: sign * pair[1].mean)
            out.append((column, entry, value))
    return out
