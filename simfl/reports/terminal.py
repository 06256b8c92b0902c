"""What a person sees: progress while it runs, then one table, protocols side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from simfl.simulate import Progress as Where
from simfl.trace import PHASES

WIDTH, LABEL, LEAST = 80, 18, 9
"""Columns of text that a table may take, those of its labels, and the fewest of a protocol's."""

CLOCKS = {
    "measured": "measured: CPU time of the real work on this machine x each device's slowdown "
    "(--clock modelled for times that are the same on any machine)",
    "modelled": "modelled: counted work x the seconds per operation of profile {profile} "
    "(--clock measured to time the real work here)",
    "recorded": "recorded: the durations of an earlier run (--clock measured or modelled for new ones)",
}


@contextmanager
def progress(console: Console, rounds: int, unit: str) -> Iterator[Callable[[Where], None]]:
    """Live progress, one bar a protocol: rounds done, virtual time, accuracy."""
    bars = Progress(
        TextColumn("{task.description}"),
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
            tasks[at.protocol] = bars.add_task(at.protocol, total=rounds, where=unit)
        accuracy = "" if at.accuracy is None else f", acc {at.accuracy:.3f}"
        where = f"{unit}, t = {at.virtual_s:.1f} s{accuracy}"
        bars.update(tasks[at.protocol], completed=at.rounds_done, where=where)

    with bars:
        yield watch


@contextmanager
def counting(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar that counts to `total`, with the time that is left."""
    columns = TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn()
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
        console.print(_table(title, {name: protocols[name] for name in side_by_side}))
    console.print(Text("Clock " + CLOCKS[summary["clock"]].format(profile=profile), style="dim"))
    for name in names:
        for r in protocols[name]["rounds"]:
            if r["status"] == "aborted":
                console.print(Text(f"{name}, {unit} {r['index']} aborted: {r['reason']}", style="yellow"))


def _heading(name: str) -> str:
    return name if len(name) <= LEAST else name.replace("_", "_\n")


def _fitting(names: list[str]) -> list[list[str]]:
    """The protocols, as many beside each other as fit."""
    tables: list[list[str]] = []
    left = 0
    for name in names:
        wide = 3 + max(LEAST, *map(len, _heading(name).splitlines()))
        if wide > left:
            tables.append([])
            left = WIDTH - LABEL
        tables[-1].append(name)
        left -= wide
    return tables


def _table(title: str, protocols: dict[str, dict[str, Any]]) -> Table:
    table = Table(title=Text(title), title_justify="left", show_edge=False, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in protocols:
        table.add_column(Text(_heading(name)), justify="right", overflow="fold", min_width=LEAST)
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
