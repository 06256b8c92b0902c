"""Text and tables on a console of any width, with all figures (`test_no_figure_is_lost_at_any_width`)."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from simfl.runs.results.breakdown import ReportTable, TableRow
from simfl.trace.text import printable

NO_VALUE = "-"
WIDTH, MIN_WIDTH = 80, 9
"""Maximum width of a paragraph, and minimum width of a table's column."""


def print_table(console: Console, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text under their headings; long cells are wrapped."""
    grid = Grid(*head, show_edge=False, pad_edge=False)
    # As `Text`: rich would read brackets in a plain string as markup.
    for row in rows:
        grid.add_row(*map(Text, row))
    console.print(grid)


def print_line(console: Console, text: str, style: str = "") -> None:
    """Print a line, which is not wrapped."""
    console.print(Text(text, style=style), soft_wrap=True)


def print_paragraph(console: Console, text: str, style: str) -> None:
    """Print a paragraph; further lines are indented, to set it apart from the next one."""
    width = max(MIN_WIDTH, min(WIDTH, console.width))
    # A break at a hyphen would split options such as --repeat.
    lines = textwrap.fill(printable(text), width, subsequent_indent="  ", break_on_hyphens=False)
    if lines:
        console.print(Text(lines, style=style), soft_wrap=True)


def _broken(name: str) -> str:
    """Return a name in lines of `MIN_WIDTH` columns, or of the length of its longest word."""
    # Names of protocols are broken behind their underscores, where a reader expects it.
    words = re.findall("[^_]*_+|[^_]+", name)
    width = max(MIN_WIDTH, *map(len, words))
    lines = [""]
    for word in words:
        if len(lines[-1] + word) > width:
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)


def print_lines(console: Console, table: ReportTable) -> None:
    """Print a table with a line for each entry, or, if its columns do not fit, a paragraph."""
    cells = [[row.cells[k].text or NO_VALUE for row in table.rows] for k in range(len(table.names))]
    named = ([name, *texts] for name, texts in zip(table.names, cells, strict=True))
    lines = [["", *(row.label for row in table.rows)], *named]
    # Two spaces stand before each column.
    first, *widths = (max(map(len, column)) for column in zip(*lines, strict=True))
    if first + sum(widths) + 2 * len(widths) <= console.width:
        for name, *texts in lines:
            right = (f"  {text:>{width}}" for text, width in zip(texts, widths, strict=True))
            print_line(console, f"{name:{first}}{''.join(right)}")
        return
    for name, texts in zip(table.names, cells, strict=True):
        facts = (f"{row.label} {text}" for row, text in zip(table.rows, texts, strict=True))
        print_paragraph(console, f"{name}: {', '.join(facts)}", "")


def print_grid(console: Console, table: ReportTable) -> None:
    """Print a table with as many entries side by side as fit; as lines if not even one fits."""
    sections, names = [section for section in table.sections if section], table.names
    labels = max((len(row.label) for row in table.rows), default=0)
    across = console.width - labels
    on_one_line = {name: _width(name, k, table) for k, name in enumerate(names)}
    broken = {name: _width(_broken(name), k, table) for k, name in enumerate(names)}
    widths = on_one_line if sum(on_one_line.values()) <= across else broken
    if max(widths.values(), default=0) > across:
        for k, name in enumerate(names):
            print_paragraph(console, f"{name}:", "bold")
            for row in table.rows:
                style = "bold" if row.is_bold else ""
                print_paragraph(console, f"  {row.label.strip()} {_cell(row, k)}", style)
        return
    for chosen in _fitting(widths, across) or [[]]:
        grid = Grid("", show_edge=False, pad_edge=False)
        grid.columns[0].no_wrap = True
        for name in chosen:
            heading = Text(name if widths is on_one_line else _broken(name))
            grid.add_column(heading, justify="right", no_wrap=True, min_width=MIN_WIDTH)
        indices = [names.index(name) for name in chosen]
        for section in sections:
            for row in section:
                cells = (_cell(row, k) for k in indices)
                grid.add_row(Text(row.label), *cells, style="bold" if row.is_bold else None)
            grid.add_section()
        console.print(grid)


def _cell(row: TableRow, entry: int) -> Text:
    if not row.cells:
        return Text("")
    text, is_fault = row.cells[entry]
    return Text(text or NO_VALUE, style="red" if is_fault else "")


def _width(heading: str, entry: int, table: ReportTable) -> int:
    cells = (len(_cell(row, entry)) for row in table.rows)
    # Rich puts a space, a rule and a space between two columns.
    return 3 + max(MIN_WIDTH, *map(len, heading.splitlines()), *cells)


def _fitting(widths: Mapping[str, int], across: int) -> list[list[str]]:
    """Return the names in groups, each of which fits side by side."""
    groups: list[list[str]] = []
    remaining = 0
    for name, width in widths.items():
        if width > remaining:
            groups.append([])
            remaining = across
        groups[-1].append(name)
        remaining -= width
    return groups
