"""Text and grids within the width of a console, with every figure at any width."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simfl.trace.text import printable

MAX_REASONS = 3  # of an entry's failed rounds, that are told
WIDTH, MIN_WIDTH = 80, 9  # the most of a paragraph, and the least of a grid's column


def print_table(console: Console, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text under their headings; long cells are wrapped."""
    table = Table(*head, show_edge=False, pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)


def say(console: Console, text: str, style: str) -> None:
    """A paragraph; its further lines are indented, so that the next one is told from them."""
    width = max(MIN_WIDTH, min(WIDTH, console.width))
    lines = textwrap.fill(printable(text), width, subsequent_indent="  ", break_on_hyphens=False)
    if lines:
        console.print(Text(lines, style=style), soft_wrap=True)


def failed(reasons: Sequence[tuple[str, int]], of: int, unit: str) -> str:
    """A sentence on failed and skipped rounds with their most frequent reasons."""
    told = [f"{count} x {reason}" for reason, count in reasons[:MAX_REASONS]]
    more = sum(count for _, count in reasons[MAX_REASONS:])
    told += [f"{more} x for other reasons"] * bool(more)
    return f"{sum(count for _, count in reasons)} of {of} {unit}s failed: {'; '.join(told)}"


def _broken(name: str) -> str:
    """A name in lines of `MIN_WIDTH` columns, or of as many as its longest word takes."""
    words = re.findall("[^_]*_+|[^_]+", name)
    width = max(MIN_WIDTH, *map(len, words))
    lines = [""]
    for word in words:
        if len(lines[-1] + word) > width:
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)


@dataclass(frozen=True)
class Row:
    """A row of the breakdown: a cell for each entry."""

    label: str
    cells: Sequence[str]
    style: str | None = None


def print_grid(console: Console, names: Sequence[str], sections: Iterable[Sequence[Row]]) -> None:
    """Print sections of rows, as many entries side by side as the width holds; lines where it holds none."""
    listed = [section for section in sections if section]
    labels = max((len(row.label) for section in listed for row in section), default=0)
    across = console.width - labels
    whole = {name: _widths(name, k, listed) for k, name in enumerate(names)}
    broken = {name: _widths(_broken(name), k, listed) for k, name in enumerate(names)}
    widths = whole if sum(whole.values()) <= across else broken
    if max(widths.values(), default=0) > across:
        for k, name in enumerate(names):
            say(console, f"{name}:", "bold")
            for row in (row for section in listed for row in section):
                say(console, f"  {row.label.strip()} {row.cells[k]}", row.style or "")
        return
    for chosen in _fitting(widths, across) or [[]]:
        table = Table("", show_edge=False, pad_edge=False)
        table.columns[0].no_wrap = True
        for name in chosen:
            heading = Text(name if widths is whole else _broken(name))
            table.add_column(heading, justify="right", no_wrap=True, min_width=MIN_WIDTH)
        places = [names.index(name) for name in chosen]
        for section in listed:
            for row in section:
                table.add_row(Text(row.label), *(row.cells[k] for k in places), style=row.style)
            table.add_section()
        console.print(table)


def _widths(heading: str, place: int, sections: Sequence[Sequence[Row]]) -> int:
    cells = (len(row.cells[place]) for section in sections for row in section)
    return 3 + max(MIN_WIDTH, *map(len, heading.splitlines()), *cells)


def _fitting(widths: Mapping[str, int], across: int) -> list[list[str]]:
    tables: list[list[str]] = []
    left = 0
    for name, width in widths.items():
        if width > left:
            tables.append([])
            left = across
        tables[-1].append(name)
        left -= width
    return tables
