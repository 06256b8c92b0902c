"""What a person sees: progress while it runs, then one table, protocols side by side."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from simfl.results.text import printable
from simfl.results.trace import PHASES
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


@contextmanager
def counting(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar that counts to `total`, with the time that is left."""
    described = TextColumn("{task.description}", markup=False)
    columns = described, BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda done: bars.update(task, completed=done)


def show(console: Console, summary: dict[str, Any], profile: str) -> None:
    """The breakdown of a run, as tables."""
    protocols = summary["protocols"]
    names = list(protocols)
    some = next(iter(protocols.values()), None)
    unit = "aggregation" if some and some["staleness"] is not None else "round"
    state = " (interrupted)" if summary["interrupted"] else ""
    title = f"{summary['scenario']}{state}: mean seconds of virtual time per {unit}"
    for side_by_side in _fitting(names) or [[]]:
        _say(console, title, "italic")
        console.print(_table({name: protocols[name] for name in side_by_side}))
    chosen = {name: p for name, p in protocols.items() if p["selection"]["kind"] != "all"}
    seen = {name: [p] for name, p in chosen.items() if p["participation"] is not None}
    if seen:
        console.print()
        console.print(participation(seen))
        sets = [(name, p["participation"]["family"]) for name, (p,) in seen.items()]
        told = ", ".join(f"{name} {_count(size)}" for name, size in sets if size is not None)
        _say(console, f"Sets to choose from (eq. 8): {told}", "dim")
    _say(console, "Clock " + CLOCKS[summary["clock"]].format(profile=profile), "dim")
    for how in dict.fromkeys(p["training"] for p in protocols.values()):
        if how:
            _say(console, f"Training {how}", "dim")
    for name in names:
        aborted = [r for r in protocols[name]["rounds"] if r["status"] == "aborted"]
        if name in chosen:  # their table counts the rounds that were skipped
            aborted = [r for r in aborted if r["selected"]]
        for r in aborted[:SHOWN]:
            _say(console, f"{name}, {unit} {r['index']} aborted: {r['reason']}", "yellow")
        if len(aborted) > SHOWN:
            left = len(aborted) - SHOWN
            _say(console, f"{name}: {left} more {unit}s aborted, see summary.json", "yellow")


def participation(runs: dict[str, list[dict[str, Any]]]) -> Table:
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
        shares = [p["participation"] for p in listed]
        weak = [s["T_weak"][-1] for s in shares]
        table.add_row(
            Text(name),
            _spread([p["final_accuracy"] for p in listed], 3),
            _interval([w[0] for w in weak if w], [w[1] for w in weak if w]),
            _interval(*[[s["T_strong"][-1] for s in shares if s["T_strong"][-1] is not None]] * 2),
            _spread([s["F"][-1] for s in shares], 2),
            _spread([s["C"][-1] for s in shares], 2),
            _spread([sum(not r["selected"] for r in p["rounds"]) for p in listed], 0),
        )
    return table


def _count(value: int) -> str:
    return str(value) if value < 10**7 else f"{Decimal(value):.1e}"  # a float may not hold it


def _several(runs: dict[str, list[dict[str, Any]]]) -> bool:
    return any(len(listed) > 1 for listed in runs.values())


def _spread(values: list[float | None], digits: int) -> str:
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


def _table(protocols: dict[str, dict[str, Any]]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("", no_wrap=True)
    whole = sum(map(_columns, protocols)) <= WIDTH - LABEL
    for name in protocols:
        heading = Text(name if whole else _broken(name))
        table.add_column(heading, justify="right", overflow="fold", min_width=LEAST)
    rates = sorted({r["dropout_rate"] for p in protocols.values() for r in p["rounds"]}, key=lambda x: x or 0)
    for rate in rates:
        groups = [
            [r for r in p["rounds"] if r["dropout_rate"] == rate and r["status"] == "completed"]
            for p in protocols.values()
        ]
        if len(rates) > 1:
            table.add_row(Text(f"drop-out {rate:.0%}", style="bold"))
        for phase in PHASES:
            table.add_row(phase, *(_seconds([r["span_s"][phase] for r in g]) for g in groups))
        table.add_row(
            "total", *(_seconds([r["end_s"] - r["start_s"] for r in g]) for g in groups), style="bold"
        )
        table.add_row("survivors", *(_counts([r["survivors"] for r in g]) for g in groups))
        table.add_section()
    listed = [p["rounds"] for p in protocols.values()]
    for phase in PHASES:
        label = f"critical: {phase}"
        table.add_row(label, *(_seconds([r["critical_s"][phase] for r in _done(p)]) for p in listed))
    table.add_section()
    table.add_row("MB up", *(_megabytes([r["bytes_up"] for r in p]) for p in listed))
    table.add_row("MB down", *(_megabytes([r["bytes_down"] for r in p]) for p in listed))
    table.add_row("completed", *(f"{len(_done(p))} of {len(p)}" for p in listed))
    table.add_row("aggregates exact", *(_true(p, "aggregate_exact") for p in listed))
    for what in ("clipped", "wrapped"):  # never without a word
        counts = [sum(r[what] or 0 for r in p) for p in listed]
        if any(counts):
            table.add_row(f"values {what}", *map(str, counts), style="red")
    shortened = [sum(r["updates_clipped"] or 0 for r in p) for p in listed]
    if any(shortened):
        table.add_row("updates clipped", *map(str, shortened))
    for what in ("reliable", "private"):  # of protocols over a graph of neighbours
        if any(r[what] is not None for p in listed for r in p):
            table.add_row(what, *(_true(p, what) for p in listed))
    refused = [sum(sum(r["refused"].values()) for r in p) for p in listed]
    if any(refused):
        table.add_row("messages refused", *map(str, refused), style="red")
    table.add_row("users lost", *(str(sum(sum(r["dropped"].values()) for r in p)) for p in listed))
    stale = [sum(r["discarded_stale"] for r in p) for p in listed]
    if any(p["staleness"] is not None for p in protocols.values()):
        table.add_row("mean staleness", *(_staleness(p["staleness"]) for p in protocols.values()))
        table.add_row("discarded as stale", *map(str, stale))
    table.add_row("test accuracy", *(_accuracy(p["final_accuracy"]) for p in protocols.values()))
    return table


def _done(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for r in rounds if r["status"] == "completed"]


def _seconds(values: list[float]) -> str:
    return f"{sum(values) / len(values):.3f}" if values else "-"


def _counts(values: list[int]) -> str:
    if not values:
        return "-"
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} - {high}"


def _megabytes(values: list[int]) -> str:
    return f"{sum(values) / len(values) / 1e6:.3f}" if values else "-"


def _true(rounds: list[dict[str, Any]], what: str) -> str:
    known = [r[what] for r in rounds if r[what] is not None]
    return f"{sum(known)} of {len(known)}" if known else "-"


def _staleness(counts: dict[str, int] | None) -> str:
    total = sum(counts.values()) if counts else 0
    return f"{sum(int(k) * v for k, v in counts.items()) / total:.2f}" if counts and total else "-"


def _accuracy(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
