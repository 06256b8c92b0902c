"""CSV files of numbers: a header, then an entry a line.

The order of lines and of columns is free, and other columns are ignored. A file is read by columns, in a
quarter of the time that lines take; one in which something is wrong is read again line by line, to name each
problem's line as for a scenario.
"""

import csv
import io
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.config.blocks import Draws
from simfl.errors import Problem, ScenarioError, cut, did_you_mean, refusal, show, text_of

MAX_PROBLEMS = 20  # of one file that are reported
CHUNK_LINES = 20_000  # that are turned into columns at once
Column = NDArray[Any]
Cells = Mapping[str, str]

_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?inf(inity)?|nan", re.I)
_DECIMAL = frozenset("0123456789+-.eE")  # of these characters `float` takes what `_NUMBER` takes


class Wrong(Exception):
    """A value that cannot be taken: its column and why."""


def number(row: Cells, column: str, least: float, greatest: float, scale: float = 1.0) -> float:
    """Return a cell's number times `scale`; Wrong if it is none, or not within the bounds."""
    text = row[column].strip()
    if not _NUMBER.fullmatch(text):
        raise Wrong(column, f"must be a number, not {show(text)}")
    value = float(text) * scale
    if not math.isfinite(value):
        raise Wrong(column, f"must be a finite number, not {cut(text)}")
    if not least <= value <= greatest:
        bound = f"at least {least:g}" if value < least else f"at most {greatest:g}"
        times = "" if scale == 1 else f" x scale={scale:g}"
        raise Wrong(column, f"must be {bound}, not {cut(text)}{times}")
    return value


def numbers(cells: Sequence[str]) -> Draws:
    """Return plain numbers; ValueError if they are not all."""
    if not _DECIMAL.issuperset("".join(cells)):
        raise ValueError("signs")
    return np.array(list(map(float, cells)), np.float64)


def by_columns(text: str, known: Sequence[str] = ()) -> Iterator[dict[str, list[str]]]:
    """Yield the cells of each column that is there once, some lines at a time; of a file without lines, none.
    A ValueError, or a csv.Error, if lines have not as many cells as the header, or a known column is there
    twice."""
    rows = filter(None, csv.reader(io.StringIO(text, newline=""), strict=True))
    names = [name.strip() for name in next(rows, [])]
    once = [name for name in names if names.count(name) == 1]
    if any(names.count(name) > 1 for name in known):
        raise ValueError("header")
    lines = list(islice(rows, CHUNK_LINES))
    cells = zip(*lines, strict=True) if lines else [()] * len(names)
    while True:
        columns = dict(zip(names, cells, strict=True))
        yield {name: [cell.strip() for cell in columns[name]] for name in once}
        if not (lines := list(islice(rows, CHUNK_LINES))):
            return
        cells = zip(*lines, strict=True)


def by_lines(
    text: str,
    file: str,
    needed: Sequence[str],
    problems: list[Problem],
    take: Callable[[int, Cells], None],
    optional: Sequence[str] = (),
) -> None:
    """Call `take` with each line's number and cells, and list what it finds wrong. ScenarioError where the
    lines cannot be told apart, a needed column is not there, or a known one is there twice."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows = filter(None, reader)
    try:
        names = [name.strip() for name in next(rows, [])]
        for name in (*needed, *optional):
            if names.count(name) > 1 or (name in needed and name not in names):
                what = "doubled" if name in names else "missing"
                hint = f"the header needs {','.join(needed)}" if len(needed) > 1 else _there_are(name, names)
                raise refusal(file, reader.line_num if names else 1, f"the column {name} is {what}: {hint}")
        for row in rows:
            try:
                if len(row) != len(names):
                    raise Wrong("", f"{len(row)} values, but the header names {len(names)} columns")
                take(reader.line_num, dict(zip(names, row, strict=True)))
            except Wrong as wrong:
                problems.append(Problem(file, reader.line_num, *wrong.args))
    except csv.Error as error:
        raise refusal(file, reader.line_num, f"not CSV: {error}") from None


def _there_are(name: str, names: Sequence[str]) -> str:
    guess = "" if name in names else did_you_mean(name, names)
    return f"the header is {cut(','.join(names))}{guess}" if names else "the file is empty"


def read_column(
    file: str, column: str, least: float, greatest: float, scale: float = 1.0, key: str = ""
) -> Draws:
    """Return the numbers of a column times `scale`, all within bounds. ScenarioError if the file, which the
    scenario names at `key`, cannot be read, has no such column, or no lines, or if a line of it is wrong."""
    try:
        found = _columns(file, _stamp(file), key)[column]
        if found.size and bool(((found * scale >= least) & (found * scale <= greatest)).all()):
            return found * scale
    except (KeyError, ValueError, csv.Error):
        pass
    problems: list[Problem] = []
    entries: list[float] = []

    def take(line: int, row: Cells) -> None:
        entries.append(number(row, column, least, greatest, scale))

    by_lines(text_of(Path(file), file, key), file, [column], problems, take)
    if problems:
        raise ScenarioError(problems[:MAX_PROBLEMS])
    if not entries:
        raise refusal(file, None, f"no entries below the header: no user would have a {column}")
    return np.array(entries)


def _stamp(file: str) -> tuple[int, ...]:
    """Return what changes when a file does, for the memory of files that were read."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):  # reading it will say so
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


# A run asks for each column, and each of its protocols again: the file is parsed once for all of them.
@lru_cache(maxsize=4)
def _columns(file: str, stamp: tuple[int, ...], key: str) -> dict[str, Draws]:
    """Return the columns of plain numbers of a file."""
    found: dict[str, list[Draws]] | None = None
    for cells in by_columns(text_of(Path(file), file, key)):
        found = {name: [] for name in cells} if found is None else found
        for name in list(found):
            try:
                found[name].append(numbers(cells[name]))
            except ValueError:
                del found[name]
    return {name: np.concatenate(parts) for name, parts in (found or {}).items()}
