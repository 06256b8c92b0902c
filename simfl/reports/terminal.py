"""The terminal's view: progress while a run is under way, then tables of a run or of a sweep's means."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.segment import Segment
from rich.text import Text

from simfl.reports import by_class, target_lines
from simfl.reports.conclusion import conclusion, wide_intervals
from simfl.reports.grid import Row, failed, line, print_grid, say
from simfl.reports.units import whole
from simfl.runs.results import drift
from simfl.runs.results.columns import Place, at
from simfl.runs.results.summary import ProtocolSummary, Summary
from simfl.runs.simulation import Progress as Where
from simfl.trace.rows import unit
from simfl.trace.text import printable

MARK, OVERLAP = "†", "*"
OVERLAPPING = (
    "Spans of one aggregation's updates overlap: they add up to more than its total. The critical path adds "
    "up to the time per aggregate."
)
CLOCKS = {
    "measured": "measured: {timed_by} of the real work on this machine x each device's slowdown "
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
    """A renderable with the text of its segments `printable`; colours are no part of that text."""

    inner: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.inner, options):
            yield Segment(text if control else printable(text), style, control)


@contextmanager
def progress(console: Console, rounds: int, unit: str) -> Iterator[Callable[[Where], None]]:
    """Live progress, one bar a protocol: rounds done, virtual time, accuracy."""
    columns = MofNCompleteColumn(), TextColumn("{task.fields[where]}"), Elapsed()
    tasks: dict[str, TaskID] = {}
    with _bars(console, 8, *columns) as bars:

        def watch(at: Where) -> None:
            if at.protocol not in tasks:
                tasks[at.protocol] = bars.add_task(printable(at.protocol), total=rounds, where=unit)
            accuracy = "" if at.accuracy is None else f", acc {at.accuracy:.3f}"
            where = f"{unit}, t = {at.virtual_s:.1f} s{accuracy}"
            bars.update(tasks[at.protocol], completed=at.rounds_done, where=where)

        yield watch


@contextmanager
def counting(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar that counts to `total` with the time that is left; nothing off a terminal."""
    with _bars(console, 24, MofNCompleteColumn(), _TimeLeft(), disable=not console.is_terminal) as bars:
        task = bars.add_task(printable(what), total=total)
        yield lambda done: bars.update(task, completed=done)


def _bars(console: Console, width: int, *columns: ProgressColumn, disable: bool = False) -> Progress:
    described = TextColumn("{task.description}", markup=False), BarColumn(width), *columns
    return Progress(*described, console=console, transient=True, disable=disable)


class _TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        if not task.completed or task.elapsed is None or task.total is None:
            return Text("")
        # by the mean since the start: rich's own looks at the last 30 s only
        left_s = task.elapsed / task.completed * (task.total - task.completed)
        return Text(f"{timedelta(seconds=round(left_s))} left")


def show(
    console: Console, summary: Summary, profile: str, time: str = "virtual", notes: Iterable[str] = ()
) -> None:
    """Print the breakdown of a run as tables, then notes, and its conclusion last."""
    show_repeats(console, [summary], profile, time, notes)


def show_repeats(
    console: Console,
    summaries: Sequence[Summary],
    profile: str,
    time: str = "virtual",
    notes: Iterable[str] = (),
) -> None:
    """Print the breakdown of one run, or the means over several runs of one scenario, as tables.

    Args:
        console: Its width decides how many entries stand side by side.
        summaries: Of the runs.
        profile: Name of the device profile.
        time: The word for the time of the run, virtual or real.
        notes: Paragraphs between the table's own notes and the conclusion.
    """
    first, several = summaries[0], len(summaries) > 1
    runs = {name: [s.protocols[name] for s in summaries] for name in first.protocols}
    overlaps = any(p.buffered for p in first.protocols.values())
    rounds = unit(overlaps)
    noisy, same = first.clock != "modelled", all(s.same_rounds for s in summaries)
    state = " (interrupted)" if any(s.interrupted for s in summaries) else ""
    over = f" of {len(summaries)} runs, with the 95 % interval of its mean" if several else ""
    heading = f"{first.scenario}{state}: seconds of {time} time per aggregate{over}"
    say(console, f"{heading}, then the means of completed {rounds}s", "italic")
    print_grid(console, list(runs), _sections(runs, noisy, same))
    if noisy and not several:
        say(console, f"±: 95 % interval of a mean over {rounds}s (--repeat N: over runs)", "dim")
    for text in wide_intervals(runs) if noisy or several else ():
        say(console, text, "yellow")
    if overlaps:
        say(console, f"{OVERLAP} {OVERLAPPING}", "dim")
    if not same:
        differ = f"{MARK} The entries completed different {rounds}s: the time per aggregate counts all."
        say(console, differ, "yellow")
    if moved := drift.warning([s.drift for s in summaries]):
        say(console, moved, "yellow")
    sets = {name: entries[0].chosen.family for name, entries in runs.items() if entries[0].chosen}
    if sets:
        console.print()
        show_participation(console, {name: runs[name] for name in sets})
        sizes = [(name, size) for name, size in sets.items() if size is not None]
        counts = [f"{name} {whole(size)}" for name, size in sizes]
        say(console, f"Sets to choose from (eq. 8): {', '.join(counts)}", "dim")
    for text in target_lines.of_run(first.protocols.values()):
        say(console, text, "dim")
    clock = CLOCKS[first.clock].format(profile=profile, timed_by=first.timed_by or "CPU time")
    say(console, f"Clock {clock}", "dim")
    for how in dict.fromkeys(p.training for p in first.protocols.values() if p.training):
        say(console, f"Training {how}", "dim")
    for number, s in enumerate(summaries, 1):
        for name, p in s.protocols.items():
            if failures := s.failures(name):
                which = f" (run {number})" * several
                say(console, f"{name}{which}: {failed(failures, len(p.rounds), rounds)}", "yellow")
    for text in notes:
        say(console, text, "")
    for text in conclusion(runs, noisy):
        say(console, text, "bold")


def show_participation(console: Console, runs: Mapping[str, Sequence[ProtocolSummary]]) -> None:
    """Print who took part (Multi-RoundSecAgg section 3.2); runs: entry -> one or several seeds.

    T weak: the least number of users that some combination of the aggregates singles out (Remark 1); T
    strong: eq. 5's. F: the gap between the most and the least frequent user. C: users an aggregate.
    """
    over = ", mean ± sd over seeds" * any(len(seeds) > 1 for seeds in runs.values())
    title = f"Who took part: after the last round{over}"
    columns = at("seeds", [p for seeds in runs.values() for p in seeds])
    cells = {name: [column.over_seeds(seeds) for column in columns] for name, seeds in runs.items()}
    lines = [[name, *values] for name, values in {"": [c.seeds for c in columns], **cells}.items()]
    widths = [max(map(len, place)) for place in zip(*lines, strict=True)]
    say(console, title, "italic")
    if sum(widths) + 2 * len(columns) <= console.width:
        for name, *values in lines:
            right = (f"  {value:>{width}}" for value, width in zip(values, widths[1:], strict=True))
            line(console, f"{name:{widths[0]}}{''.join(right)}")
        return
    for name, values in cells.items():
        facts = (f"{column.seeds} {value}" for column, value in zip(columns, values, strict=True))
        say(console, f"{name}: {', '.join(facts)}", "")


def _sections(runs: Mapping[str, Sequence[ProtocolSummary]], noisy: bool, same: bool) -> Iterator[list[Row]]:
    """Yield the rows of the breakdown, in sections."""
    entries = list(runs.values())
    every = {r.dropout_rate for group in entries for p in group for r in p.rounds}
    rates = sorted(every, key=lambda rate: rate or 0)
    yield _rows("time", entries, noisy)
    for rate in rates:
        parts = entries if len(rates) == 1 else [[p.at(rate) for p in group] for group in entries]
        title = [Row(f"drop-out {rate:.0%}", [""] * len(entries), "bold")] if len(rates) > 1 else []
        time = _rows("time", parts, noisy) if len(rates) > 1 else []
        yield title + time + _rows("rates", parts, noisy, "" if same else f" {MARK}")
    yield _rows("path", entries, noisy)
    yield from by_class.sections(runs)
    yield _rows("run", entries, noisy)


def _rows(
    place: Place, entries: Sequence[Sequence[ProtocolSummary]], noisy: bool, mark: str = ""
) -> list[Row]:
    every = [p for group in entries for p in group]
    out = []
    for column in at(place, every):
        if not column.rare or any(map(column.tells, every)):
            fault = "red" if column.rare and column.fault else None
            style = "bold" if column.key == "per_aggregate_s" else fault
            cells = [column.over_runs(group, noisy) for group in entries]
            overlap = f" {OVERLAP}" * (column.key == "span_s" and any(p.buffered for p in every))
            out.append(Row(getattr(column, place) + mark + overlap, cells, style))
    return out
