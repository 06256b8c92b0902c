"""Classes of users in the reports: who took part, who was lost, and whom the others waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from simfl.reports.grid import Row
from simfl.reports.units import percent
from simfl.results.by_class import ClassSummary
from simfl.results.summary import ProtocolSummary, mean
from simfl.results.trace import PHASES

Cell = Callable[[ClassSummary, int], tuple[float, float]]
"""A figure of a class, out of so many aggregates: a part and its whole, or seconds and 0."""

FIGURES: dict[str, Cell] = {
    "in aggregates": lambda c, aggregates: (c.aggregated, c.invited),
    "lost": lambda c, aggregates: (sum(c.lost.values()), c.invited),
    "s on the path": lambda c, aggregates: (sum(c.waited_s.values()) / max(1, aggregates), 0),
}


def sections(runs: Mapping[str, Sequence[ProtocolSummary]]) -> Iterator[list[Row]]:
    """Yield the terminal's rows of each class: updates in aggregates and losses, of those who were invited,
    and the seconds of the critical path per aggregate that its users took; over several runs the means."""
    every = [p for group in runs.values() for p in group]
    for name, first in (every[0].classes or {}).items() if every else ():
        rows = [Row(f"{name} ({first.users} users)", [""] * len(runs), "bold")]
        for label, figure in FIGURES.items():
            rows.append(Row(label, [_cell(group, name, figure) for group in runs.values()]))
        yield rows


def _cell(group: Sequence[ProtocolSummary], name: str, figure: Cell) -> str:
    found = [figure(p.classes[name], len(p.completed)) for p in group if p.classes and name in p.classes]
    part, whole = (sum(values) for values in zip(*found, strict=True)) if found else (0.0, 0.0)
    if whole:
        return percent(part, whole)
    return f"{mean(seconds for seconds, _ in found) or 0:.3f}" if figure is FIGURES["s on the path"] else "-"


def table(protocols: Mapping[str, ProtocolSummary]) -> list[dict[str, Any]]:
    """Return the page's rows: of each class, a row of each protocol."""
    names = dict.fromkeys(name for p in protocols.values() for name in p.classes or {})
    return [
        {
            "class": name,
            "first": protocol == next(iter(protocols)),
            "rows": len(protocols),
            "protocol": protocol,
            "of": own,
            "aggregated": percent(own.aggregated, own.invited) if own.invited else "–",
            "lost": [own.lost[phase] for phase in PHASES],
            "waited_s": [f"{own.waited_s[phase] / max(1, len(p.completed)):.3f}" for phase in PHASES],
        }
        for name in names
        for protocol, p in protocols.items()
        if p.classes and (own := p.classes.get(name))
    ]
