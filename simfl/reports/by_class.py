"""Classes of users in the reports: participation, losses, joules, and the time that others waited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simfl.errors import counted
from simfl.reports import chart
from simfl.reports.grid import Row
from simfl.reports.units import percent
from simfl.runs.results.by_class import ClassSummary
from simfl.runs.results.summary import ProtocolSummary
from simfl.trace.rows import PHASES

MAX_ROWS, MAX_LINES = 50, 12  # classes that the page and the terminal show of a protocol


@dataclass(frozen=True)
class Figure:
    """A figure of a class: a part of a whole, in percent or as their ratio. read: also gets the number of the
    run's aggregates. rare: left out where every class has nothing of it. digits: of a ratio."""

    terminal: str
    page: str
    read: Callable[[ClassSummary, int], tuple[float, float]]
    digits: int | None = None
    rare: bool = True

    def text(self, found: Iterable[tuple[ClassSummary, int]], none: str) -> str:
        """Return the figure of one run, or of several together."""
        values = [self.read(c, aggregates) for c, aggregates in found]
        part, whole = (sum(column) for column in zip(*values, strict=True)) if values else (0, 0)
        if not whole:
            return none
        return percent(part, whole) if self.digits is None else f"{part / whole:.{self.digits}f}"


PATH = Figure(
    "s on the path", "", lambda c, aggregates: (sum(c.waited_s.values()), max(1, aggregates)), 3, False
)
FIGURES = (
    Figure("in aggregates", "In aggregates", lambda c, _: (c.aggregated, c.invited), rare=False),
    Figure("cut short", "Cut short", lambda c, _: (c.partial, c.aggregated)),
    Figure("lost", "Lost", lambda c, _: (sum(c.lost.values()), c.invited), rare=False),
    Figure("surplus", "Surplus", lambda c, _: (c.surplus, c.invited)),
    Figure("J/user", "Joules a user", lambda c, _: (c.energy.users_j, c.invited) if c.energy else (0, 0), 3),
)


def _told(protocols: Iterable[ProtocolSummary]) -> list[Figure]:
    """Return the figures with anything to tell."""
    every = [c for p in protocols for c in (p.classes or {}).values()]
    return [f for f in FIGURES if not f.rare or any(f.read(c, 0)[0] for c in every)]


def sections(runs: Mapping[str, Sequence[ProtocolSummary]]) -> Iterator[list[Row]]:
    """Yield the terminal's rows of each class. Shares and joules are of those who were invited, each time; of
    the critical path, the seconds per aggregate that users of the class took."""
    every = [p for group in runs.values() for p in group]
    classes = list(dict.fromkeys(name for p in every for name in p.classes or {}))
    empty = [""] * len(runs)
    for name in classes[:MAX_LINES]:
        sizes = [p.classes[name].users for p in every if p.classes and name in p.classes]
        from_ = "" if min(sizes) == max(sizes) else f"{min(sizes)} to "
        rows = [Row(f"{name} ({from_}{counted(max(sizes), 'user')})", empty, "bold")]
        for figure in (*_told(every), PATH):
            rows.append(Row(f"  {figure.terminal}", [_cell(group, name, figure) for group in runs.values()]))
        yield rows
    if len(classes) > MAX_LINES:
        yield [Row(f"and {len(classes) - MAX_LINES} more classes", empty)]


def _cell(group: Sequence[ProtocolSummary], name: str, figure: Figure) -> str:
    found = [(p.classes[name], len(p.completed)) for p in group if p.classes and name in p.classes]
    return figure.text(found, "-")


def table(protocols: Mapping[str, ProtocolSummary], nothing: str) -> dict[str, Any] | None:
    """Return the page's table: of each protocol a row of each class; None without classes."""
    shown = {name: p.classes for name, p in protocols.items() if p.classes}
    if not shown:
        return None
    figures = _told(protocols.values())
    aggregates = {name: max(1, len(protocols[name].completed)) for name in shown}
    longest = max(sum(c.waited_s.values()) / aggregates[name] for name in shown for c in shown[name].values())
    phases = [k for k in PHASES if any(c.lost[k] for classes in shown.values() for c in classes.values())]
    groups = [
        {
            "protocol": name,
            "left_out": max(0, len(classes) - MAX_ROWS),
            "rows": [
                {
                    "class": of,
                    "users": own.users,
                    "invited": own.invited,
                    "cells": [f.text([(own, aggregates[name])], nothing) for f in figures],
                    "lost": [own.lost[phase] for phase in phases],
                    "path": _path(own, aggregates[name], longest),
                    "waited": PATH.text([(own, aggregates[name])], nothing),
                }
                for of, own in list(classes.items())[:MAX_ROWS]
            ],
        }
        for name, classes in shown.items()
    ]
    return {"headings": [f.page for f in figures], "phases": phases, "groups": groups}


def _path(own: ClassSummary, aggregates: int, longest: float) -> list[dict[str, Any]]:
    """Return the parts of a bar, in percent of the longest: the seconds per aggregate by phase."""
    waited = ((phase, own.waited_s[phase] / aggregates) for phase in PHASES if own.waited_s[phase])
    return chart.stacked((phase, f"{phase}: {s:.3f} s", 100 * s / longest) for phase, s in waited)
