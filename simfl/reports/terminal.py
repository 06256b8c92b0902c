"""The terminal's view: progress while a run is under way, then a report."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.segment import Segment
from rich.text import Text

from simfl.reports.grid import print_grid, print_lines, say
from simfl.reports.model import Report, Topic
from simfl.runs.results.breakdown import ReportTable
from simfl.runs.simulation import Progress as Where
from simfl.trace.text import printable


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


STYLES: dict[Topic, str] = {
    "title": "italic", "entry": "bold", "text": "", "note": "dim", "clock": "dim", "training": "dim",
    "sets": "dim",
    "warning": "yellow", "different": "yellow", "outlier": "yellow", "drift": "yellow",
    "conclusion": "bold", "gap": "",
}  # fmt: skip


def show(console: Console, report: Report) -> None:
    """Print a report."""
    for part in report.parts:
        if isinstance(part, ReportTable):
            (print_lines if part.across else print_grid)(console, part)
        elif part.topic == "gap":
            console.print()
        else:
            say(console, part.text, STYLES[part.topic])
