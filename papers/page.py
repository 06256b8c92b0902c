"""docs/reproduction.md from the stored results: what the papers print, and what comes out here.

Law: every figure of ours is read from a stored result; a page is a function of the entries and their
results alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from papers.entry import Cell, Entry, Place, Value
from papers.store import Stored

HEAD = """\
# The papers' tables and figures, run again

Made by `simfl reproduce --page` from the results in `docs/reproduction/`; do not edit. In a checkout
`simfl reproduce NAME` runs a row again and stores what comes of it. Differences are ours / paper - 1; *agree*
counts the cells that keep the bound set for them, or the order or fact that the paper states. Times are CPU
seconds of the run that is stored. Where a data set cannot be shipped, the row says what it ran on instead.
"""


def page(results: Sequence[tuple[Entry, Stored]], place: Place) -> str:
    """The whole page."""
    rows = [(entry, stored, place) for entry, stored in results]
    head = ("where", "what", "worst difference", "agree", "CPU time", "command", "where it disagrees")
    summary = _table(head, (_summary(entry, stored) for entry, stored in results))
    return "\n".join([HEAD, *summary, "", *(line for row in rows for line in _section(*row))])


def _summary(entry: Entry, stored: Stored) -> tuple[str, ...]:
    cells = stored.evidence.cells
    decided = [cell.agrees for cell in cells if cell.agrees is not None]
    return (
        f"[{entry.paper} {entry.where}](#{entry.name})",
        entry.title,
        _worst(cells),
        f"{sum(decided)} of {len(decided)}" if decided else "",
        _took(stored.cpu_s),
        f"`{stored.command}`",
        entry.word,
    )


def _worst(cells: Iterable[Cell]) -> str:
    differences = [cell.difference for cell in cells if cell.difference is not None]
    return _percent(max(differences, key=abs)) if differences else ""


def _section(entry: Entry, stored: Stored, place: Place) -> Iterator[str]:
    yield f'<a id="{entry.name}"></a>'
    yield f"## {entry.paper}, {entry.where}: {entry.title}"
    yield ""
    yield " ".join(filter(None, (f"Run on {stored.evidence.on or entry.on}.", entry.how, entry.word)))
    yield ""
    head = ("", "paper", "ours", "unit", "difference", "")
    yield from _table(head, (_row(cell) for cell in stored.evidence.cells))
    yield ""
    for number, chart in enumerate(stored.evidence.charts, 1):
        file = place.results / f"{chart_name(entry.name, number)}.svg"
        yield f"![{chart.title}]({file.relative_to(place.page.parent).as_posix()})"
        yield ""
    yield f"`{stored.command}`, seed {stored.seed}, {_took(stored.cpu_s)} of CPU time, simfl {stored.code}."
    yield ""


def chart_name(name: str, number: int) -> str:
    """What the file of an entry's figure is called, without its ending."""
    return name if number == 1 else f"{name}_{number}"


def _row(cell: Cell) -> tuple[str, ...]:
    difference = cell.difference
    told = "" if difference is None else _percent(difference)
    if cell.compare == "order":
        told = "as stated" if cell.agrees else "**not so**"
    elif cell.compare == "at most":
        told = "at most that" if cell.agrees else "**more**"
    elif cell.agrees is False and cell.bound is not None:
        told = f"**{told}**, beyond {100 * cell.bound:g} %"
    return cell.label, _value(cell.paper), _value(cell.ours), cell.unit, told, cell.remark


def _value(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if value == int(value) and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.4g}"


def _percent(difference: float) -> str:
    if difference == 0:
        return "0 %"
    return f"{100 * difference:+.2g} %" if abs(difference) < 0.1 else f"{100 * difference:+.0f} %"


def _took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _line(head)
    yield "|" + "---|" * len(head)
    for row in rows:
        yield _line(row)


def _line(row: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in row) + " |"
