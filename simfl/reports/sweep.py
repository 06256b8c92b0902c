"""A sweep's means on the terminal, within 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from simfl.results.columns import Column, Measure, at
from simfl.studies.sweep.plan import in_words
from simfl.studies.sweep.tables import Estimate, Group

WIDTH, LABEL, CELL = 79, 16, 9
"""Columns of text: of all, of a protocol's name, and of a number."""

SHOWN = 12
"""Points that are shown; the tables on disk have them all."""

Means = Mapping[Group, Mapping[Measure, Estimate | None]]


def show(
    console: Console,
    name: str,
    points: Sequence[Mapping[str, Any]],
    means: Means,
    seeds: int,
) -> None:
    """Mean and 95 % interval of each point and protocol, the first points of many."""
    over = "one seed, so no interval" if seeds == 1 else f"mean and ± 95 % interval over {seeds} seeds"
    _line(console, f"{name}: {over}", "bold")
    _line(console, "Seconds of virtual time per round (in all, and the span of each phase)", "dim")
    _line(console, " " * LABEL + "".join(f"{column.sweep:>{CELL}}" for column in at("sweep")))
    there = sorted({point for point, _ in means})
    labels = _labels([points[number] for number in there])
    for number, label in list(zip(there, labels, strict=True))[:SHOWN]:
        if label:
            _line(console, label if len(label) <= WIDTH else f"{label[: WIDTH - 3]}...", "bold")
        for (point, protocol), measures in means.items():
            if point == number:
                _show_one(console, protocol, measures, seeds)
    if len(there) > SHOWN:
        _line(console, f"... and {len(there) - SHOWN} of {len(there)} points more: means.csv has them all")


def _show_one(
    console: Console, protocol: str, measures: Mapping[Measure, Estimate | None], seeds: int
) -> None:
    shown = [(column, measures.get(column.measure)) for column in at("sweep")]
    name = f"  {protocol}"
    if len(name) >= LABEL:
        _line(console, name)
        name = ""
    _line(console, f"{name:{LABEL}}" + "".join(f"{_mean(c, e):>{CELL}}" for c, e in shown))
    known = shown[0][1].n if shown[0][1] else 0
    if seeds > 1:
        few = f"  {known} of {seeds} seeds" if known < seeds else ""
        line = f"{few:{LABEL}}" + "".join(f"{_half(c, e):>{CELL}}" for c, e in shown)
        if line.strip():
            _line(console, line.rstrip(), "dim")


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)


def _labels(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells the points apart, in short: single values, unless these do not tell them apart."""
    single = [{k: v for k, v in p.items() if not isinstance(v, dict | list)} for p in points]
    chosen = single if len({in_words(p) for p in single}) == len(points) else points
    keys = {key for point in chosen for key in point}
    ends = [key.rpartition(".")[2] for key in keys]
    short = {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}
    return [in_words({short[key]: value for key, value in point.items()}) for point in chosen]


def _number(value: float) -> str:
    """At most seven characters."""
    if abs(value) < 1e3:
        return f"{value:.3f}"
    return f"{value:.1f}" if abs(value) < 1e5 else f"{value:.1e}"


def _mean(column: Column, e: Estimate | None) -> str:
    if e is None:
        return "-"
    if column.how == "share":
        return "all" if e.mean == 1 else f"{e.mean:.1%}"
    return _number(e.mean)


def _half(column: Column, e: Estimate | None) -> str:
    return "" if e is None or e.half is None or column.how == "share" else f"±{_number(e.half)}"
