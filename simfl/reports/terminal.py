"""A run on a terminal: its progress, then its report."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.segment import Segment
from rich.text import Text

from simfl.reports.grid import print_grid, print_lines, print_paragraph
from simfl.reports.model import Report, Topic
from simfl.runs.results.breakdown import ReportTable
from simfl.runs.simulation import Progress as RunProgress
from simfl.trace.text import printable


def console(stderr: bool = False) -> Console:
    """Return a console on which text from files cannot move the cursor, change colours or set links.

    `test_control_characters_are_spelled_out`.
    """
    safe = Console(stderr=stderr)
    # At the end of rendering, where all text has arrived: no caller can forget it.
    safe.push_render_hook(_Printable())
    return safe


class _Printable(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Spelled(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _Spelled:
    """A renderable whose text is `printable`; its colours are styles, and not part of the text."""

    inner: ConsoleRenderable
    """The original."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.inner, options):
            # Control segments are rich's own, such as moves of a progress bar's cursor.
            yield Segment(text if control else printable(text), style, control)


@contextmanager
def progress(console: Console, rounds: int, unit: str) -> Iterator[Callable[[RunProgress], None]]:
    """Show live progress, a bar for each protocol: finished rounds, virtual time, accuracy."""
    columns = MofNCompleteColumn(), TextColumn("{task.fields[state]}"), Elapsed()
    tasks: dict[str, TaskID] = {}
    with _bars(console, 8, *columns) as bars:

        def watch(at: RunProgress) -> None:
            # A bar appears when its protocol begins.
            if at.protocol not in tasks:
                tasks[at.protocol] = bars.add_task(printable(at.protocol), total=rounds, state=unit)
            accuracy = "" if at.accuracy is None else f", acc {at.accuracy:.3f}"
            state = f"{unit}, t = {at.virtual_s:.1f} s{accuracy}"
            bars.update(tasks[at.protocol], completed=at.rounds_done, state=state)

        yield watch


@contextmanager
def counting(console: Console, label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar that counts to `total`, with the remaining time; nothing off a terminal."""
    with _bars(console, 24, MofNCompleteColumn(), _TimeLeft(), disable=not console.is_terminal) as bars:
        task = bars.add_task(printable(label), total=total)
        yield lambda done: bars.update(task, completed=done)


def _bars(console: Console, width: int, *columns: ProgressColumn, disable: bool = False) -> Progress:
    # A protocol's name may have brackets, which rich would read as markup
    # (`test_names_are_no_markup_in_the_progress`).
    described = TextColumn("{task.description}", markup=False), BarColumn(width), *columns
    return Progress(*described, console=console, transient=True, disable=disable)


class _TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        if not task.completed or task.elapsed is None or task.total is None:
            return Text("")
        # From the mean since the start, as rich's own column uses the last 30 s only.
        remaining_s = task.elapsed / task.completed * (task.total - task.completed)
        return Text(f"{timedelta(seconds=round(remaining_s))} left")


STYLES: dict[Topic, str] = {
    "title": "italic", "entry": "bold", "text": "", "note": "dim", "clock": "dim", "training": "dim",
    "sets": "dim",
    "warning": "yellow", "different": "yellow", "outlier": "yellow", "drift": "yellow",
    "conclusion": "bold", "broken": "bold red", "gap": "",
}  # fmt: skip


def show(console: Console, report: Report) -> None:
    """Print a report."""
    for part in report.parts:
        if isinstance(part, ReportTable):
            (print_lines if part.across else print_grid)(console, part)
        elif part.topic == "gap":
            console.print()
        else:
            print_paragraph(console, part.text, STYLES[part.topic])
