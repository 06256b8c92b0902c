"""A sweep on the terminal: how far it is, and then its means within 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from simfl.results.text import printable
from simfl.results.trace import PHASES
from simfl.studies.sweep.plan import told
from simfl.studies.sweep.tables import Estimate, Group, Measure

WIDTH, LABEL, CELL = 79, 16, 9
"""Columns of text: of all, of a protocol's name, and of a number."""

SHOWN = 12
"""Points that are shown; the tables on disk have them all."""

COLUMNS: dict[str, Measure] = {
    "total": ("total_s", ""),
    **{phase: ("span_s", phase) for phase in PHASES},
    "accuracy": ("accuracy", ""),
    "exact": ("exact", ""),
}

Means = Mapping[Group, Mapping[Measure, Estimate | None]]


class _Left(ProgressColumn):
    """The time that is left, from the mean time of those done since the start."""

    def render(self, task: Task) -> Text:
        if not task.completed or task.elapsed is None or task.total is None:
            return Text("")
        left_s = task.elapsed / task.completed * (task.total - task.completed)
        return Text(f"{timedelta(seconds=round(left_s))} left")


@contextmanager
def progress(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar that counts to `total` with the time that is left; nothing off a terminal."""
    columns = TextColumn("{task.description}", markup=False), BarColumn(24), MofNCompleteColumn(), _Left()
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bars:
        task = bars.add_task(printable(what), total=total)
        yield lambda done: bars.update(task, completed=done)


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
    _line(console, " " * LABEL + "".join(f"{heading:>{CELL}}" for heading in COLUMNS))
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
    shown = [measures.get(measure) for measure in COLUMNS.values()]
    name = f"  {protocol}"
    if len(name) >= LABEL:
        _line(console, name)
        name = ""
    cells = [_share(e) if heading == "exact" else _mean(e) for heading, e in zip(COLUMNS, shown, strict=True)]
    _line(console, f"{name:{LABEL}}" + "".join(f"{cell:>{CELL}}" for cell in cells))
    known = shown[0].n if shown[0] else 0
    if seeds > 1:
        few = f"  {known} of {seeds} seeds" if known < seeds else ""
        halves = ["" if heading == "exact" else _half(e) for heading, e in zip(COLUMNS, shown, strict=True)]
        line = f"{few:{LABEL}}" + "".join(f"{half:>{CELL}}" for half in halves)
        if line.strip():
            _line(console, line.rstrip(), "dim")


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)


def _labels(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells the points apart, in short: single values, unless these do not tell them apart."""
    single = [{k: v for k, v in p.items() if not isinstance(v, dict | list)} for p in points]
    chosen = single if len({told(p) for p in single}) == len(points) else points
    keys = {key for point in chosen for key in point}
    ends = [key.rpartition(".")[2] for key in keys]
    short = {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}
    return [told({short[key]: value for key, value in point.items()}) for point in chosen]


def _number(value: float) -> str:
    """At most seven characters."""
    if abs(value) < 1e3:
        return f"{value:.3f}"
    return f"{value:.1f}" if abs(value) < 1e5 else f"{value:.1e}"


def _mean(e: Estimate | None) -> str:
    return "-" if e is None else _number(e.mean)


def _half(e: Estimate | None) -> str:
    return "" if e is None or e.half is None else f"±{_number(e.half)}"


def _share(e: Estimate | None) -> str:
    if e is None:
        return "-"
    return "all" if e.mean == 1 else f"{e.mean:.1%}"
