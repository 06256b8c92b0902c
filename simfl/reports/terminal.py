"""What a person sees: progress while it runs, then one table, protocols side by side."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from simfl.results.columns import Place, at
from simfl.results.summary import ProtocolSummary, Summary
from simfl.results.text import printable
from simfl.results.trace import unit
from simfl.simulation import Progress as Where

SHOWN = 3
"""Aborted rounds of an entry that are told one by one."""

WIDTH, LABEL, LEAST = 80, 18, 9
"""Columns of text that a table may take, those of its labels, and the fewest of a protocol's."""

CLOCKS = {
    "measured": "measured: CPU time of the real work on this machine x each device's slowdown "
    "(--clock modelled for times that are the same on any machine)",
    "modelled": "modelled: counted work x the seconds per operation of profile {profile} "
    "(--clock measured to time the real work here)",
    "recorded": "recorded: the durations of an earlier run (--clock measured or modelled for new ones)",
}


def console(stderr: bool = False) -> Console:
    """A console on which text from files can do nothing but be read."""
    made = Console(stderr=stderr)
    made.push_render_hook(_Printable())
    return made


class _Printable(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Spelled(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _Spelled:
    """What is printed, with the text of its segments `printable`; colours are no part of that text."""

    inner: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.inner, options):
            yield Segment(text if control else printable(text), style, control)


@contextmanager
def progress(console: Console, rounds: int, unit: str) -> Iterator[Callable[[Where], None]]:
    """Live progress, one bar a protocol: rounds done, virtual time, accuracy."""
    bars = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=8),
        MofNCompleteColumn(),
        TextColumn("{task.fields[where]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    tasks: dict[str, Any] = {}

    def watch(at: Where) -> None:
        if at.protocol not in tasks:
            tasks[at.protocol] = bars.add_task(printable(at.protocol), total=rounds, where=unit)
        accuracy = "" if at.accuracy is None else f", acc {at.accuracy:.3f}"
        where = f"{unit}, t = {at.virtual_s:.1f} s{accuracy}"
        bars.update(tasks[at.protocol], completed=at.rounds_done, where=where)

    with bars:
        yield watch


class _Left(ProgressColumn):
    """The time that is left, from the mean time of those done since the start."""

    def render(self, task: Task) -> Text:
        if not task.completed or task.elapsed is None or task.total is None:
            return Text("")
        left_s = task.elapsed / task.completed * (task.total - task.completed)
        return Text(f"{timedelta(seconds=round(left_s))} left")


@contextmanager
def counting(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar that counts to `total` with the time that is left; nothing off a terminal."""
    columns = TextColumn("{task.description}", markup=False), BarColumn(24), MofNCompleteColumn(), _Left()
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bars:
        task = bars.add_task(printable(what), total=total)
        yield lambda done: bars.update(task, completed=done)


def show(console: Console, summary: Summary, profile: str) -> None:
    """The breakdown of a run, as tables."""
    protocols = summary.protocols
    names = list(protocols)
    what = unit(any(p.buffered for p in protocols.values()))
    state = " (interrupted)" if summary.interrupted else ""
    title = f"{summary.scenario}{state}: mean seconds of virtual time per {what}"
    for side_by_side in _fitting(names) or [[]]:
        _say(console, title, "italic")
        console.print(_table({name: protocols[name] for name in side_by_side}))
    chosen = {name: p for name, p in protocols.items() if p.chosen}
    if chosen:
        console.print()
        console.print(participation({name: [p] for name, p in chosen.items()}))
        sets = [(name, p.chosen.family) for name, p in chosen.items() if p.chosen]
        told = ", ".join(f"{name} {_count(size)}" for name, size in sets if size is not None)
        _say(console, f"Sets to choose from (eq. 8): {told}", "dim")
    _say(console, "Clock " + CLOCKS[summary.clock].format(profile=profile), "dim")
    for how in dict.fromkeys(p.training for p in protocols.values()):
        if how:
            _say(console, f"Training {how}", "dim")
    for name, p in protocols.items():
        # the table of who took part counts the rounds that were skipped
        aborted = [r for r in p.rounds if not r.completed and (r.selected or not p.chosen)]
        for r in aborted[:SHOWN]:
            _say(console, f"{name}, {what} {r.index} aborted: {r.reason}", "yellow")
        if len(aborted) > SHOWN:
            left = len(aborted) - SHOWN
            _say(console, f"{name}: {left} more {what}s aborted, see summary.json", "yellow")


def participation(runs: dict[str, list[ProtocolSummary]]) -> Table:
    """Who took part over all rounds (Multi-RoundSecAgg section 3.2), entry -> its runs, one or several seeds.

    T weak: the least number of users that some combination of the aggregates singles out (Remark 1; an
    interval where the search ended early). T strong: eq. 5's. F: the gap between the most and the least
    frequent user. C: users an aggregate. Of several seeds the mean and the standard deviation.
    """
    title = "Who took part: after the last round" + (", mean ± sd over seeds" if _several(runs) else "")
    table = Table(title=Text(title), title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for heading in ("accuracy", "T weak", "T strong", "F", "C", "skipped"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, listed in runs.items():
        shares = [p.participation for p in listed if p.participation]
        weak = [s.T_weak[-1] for s in shares]
        strong = [T for s in shares if (T := s.T_strong[-1]) is not None]
        table.add_row(
            Text(name),
            _spread([p.final_accuracy for p in listed], 3),
            _interval([T[0] for T in weak if T], [T[1] for T in weak if T]),
            _interval(strong, strong),
            _spread([s.F[-1] for s in shares], 2),
            _spread([s.C[-1] for s in shares], 2),
            _spread([sum(not r.selected for r in p.rounds) for p in listed], 0),
        )
    return table


def _count(value: int) -> str:
    return str(value) if value < 10**7 else f"{Decimal(value):.1e}"  # a float may not hold it


def _several(runs: dict[str, list[ProtocolSummary]]) -> bool:
    return any(len(listed) > 1 for listed in runs.values())


def _spread(values: Iterable[float | None], digits: int) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return "-"
    mean = f"{statistics.fmean(known):.{digits}f}"
    return mean if len(known) == 1 else f"{mean}±{statistics.stdev(known):.{digits}f}"


def _interval(low: list[int], high: list[int]) -> str:
    if not low:
        return "-"
    least, most = min(low), max(high)
    return str(least) if least == most else f"{least} - {most}"


def _say(console: Console, text: str, style: str) -> None:
    """A paragraph; its further lines are indented, so that the next one is told from them."""
    lines = textwrap.fill(printable(text), WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    console.print(Text(lines, style=style))


def _broken(name: str) -> str:
    """A name in lines of `LEAST` columns, or of as many as its longest word takes."""
    words = re.findall("[^_]*_+|[^_]+", name)
    wide = max(LEAST, *map(len, words))
    lines = [""]
    for word in words:
        if len(lines[-1] + word) > wide:
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)


def _columns(heading: str) -> int:
    return 3 + max(LEAST, *map(len, heading.splitlines()))


def _fitting(names: list[str]) -> list[list[str]]:
    """The protocols, as many beside each other as fit."""
    tables: list[list[str]] = []
    left = 0
    for name in names:
        wide = _columns(_broken(name))
        if wide > left:
            tables.append([])
            left = WIDTH - LABEL
        tables[-1].append(name)
        left -= wide
    return tables


def _table(protocols: dict[str, ProtocolSummary]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("", no_wrap=True)
    whole = sum(map(_columns, protocols)) <= WIDTH - LABEL
    for name in protocols:
        heading = Text(name if whole else _broken(name))
        table.add_column(heading, justify="right", overflow="fold", min_width=LEAST)
    listed = list(protocols.values())
    rates = sorted({r.dropout_rate for p in listed for r in p.rounds}, key=lambda rate: rate or 0)
    for rate in rates:
        if len(rates) > 1:
            table.add_row(Text(f"drop-out {rate:.0%}", style="bold"))
        _rows(table, "rates", [p.at(rate) for p in listed])
    _rows(table, "path", listed)
    _rows(table, "run", listed)
    return table


def _rows(table: Table, place: Place, protocols: list[ProtocolSummary]) -> None:
    """A section of the table; what is wrong is red."""
    for column in at(place, protocols):
        if column.rare and not any(map(column.tells, protocols)):
            continue
        style = "bold" if column.key == "total_s" else "red" if column.rare and column.fault else None
        heading: str = getattr(column, place)
        table.add_row(heading, *map(column.text, protocols), style=style)
    table.add_section()
