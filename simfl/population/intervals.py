"""When users are online, from a CSV file: a header `user,from_s,to_s`, then an interval a line.

The order of lines and of columns is free, and other columns are ignored. Users that are not in the file are
never online. What is wrong is reported with the file's line, as for a scenario.

A file of plain numbers in which nothing is wrong is read by columns, in a quarter of the time; any other line
by line, which finds out what is wrong, if anything is.
"""

from __future__ import annotations

import csv
import io
import math
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.blocks import GREATEST
from simfl.errors import Problem, ScenarioError, cut, refusal, show, text_of

COLUMNS = ("user", "from_s", "to_s")
KEY = "population.availability.file"
MOST = 20
"""So many problems of one file are reported."""

Column = NDArray[Any]

CHUNK = 20_000
"""Lines that are turned into columns at once."""

_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?inf(inity)?|nan", re.I)

_DIGITS = frozenset("0123456789 ")
_DECIMAL = _DIGITS | set("+-.eE")
"""What `float` takes of these characters is what `_NUMBER` takes."""


@dataclass(frozen=True, slots=True, order=True)
class _Interval:
    from_s: float
    to_s: float
    line: int


class _Wrong(Exception):
    """A value that cannot be taken: its column and why."""


class Intervals(Mapping[int, list[tuple[float, float]]]):
    """User -> when it is online: (from, to), both seconds since the start of the run, in order of time.

    Held by columns, 16 bytes an interval: objects would take ten times as much. whose, begins, ends: in order
    of users, then of time.
    """

    def __init__(self, whose: Column, begins: Column, ends: Column) -> None:
        self._users = np.unique(whose)
        after = int(self._users[-1]) + 1 if whose.size else 0
        self._first = array("q", np.searchsorted(whose, np.arange(after + 1)).tobytes())
        self._begins, self._ends = (array("d", column.tobytes()) for column in (begins, ends))

    def __getitem__(self, user: int) -> list[tuple[float, float]]:
        if not 0 <= user < len(self._first) - 1 or self._first[user] == self._first[user + 1]:
            raise KeyError(user)
        mine = slice(self._first[user], self._first[user + 1])
        return list(zip(self._begins[mine], self._ends[mine], strict=True))

    def __iter__(self) -> Iterator[int]:
        return map(int, self._users)

    def __len__(self) -> int:
        return len(self._users)


def read_intervals(file: str, users: int) -> Intervals:
    """When users are online. Intervals may touch, but they do not overlap.

    Raises:
        ScenarioError: the file cannot be read, a column is missing, or a line of it is wrong.
    """
    text = text_of(Path(file), file, KEY)
    quick = _by_columns(text, users)
    if quick is not None:
        return quick
    found = _by_lines(text, file, users)
    listed = [(user, *interval) for user in sorted(found) for interval in found[user]]
    whose, begins, ends = zip(*listed, strict=True) if listed else ((), (), ())
    return Intervals(np.array(whose, np.int64), np.array(begins), np.array(ends))


def _by_columns(text: str, users: int) -> Intervals | None:
    """What a file says; None if it must be read line by line."""
    try:
        chunks = list(_chunks(text))
    except (ValueError, OverflowError, csv.Error):
        return None
    if not chunks:
        return None
    user, begin, end = map(np.concatenate, zip(*chunks, strict=True))
    order = np.lexsort((end, begin, user))
    user, begin, end = user[order], begin[order], end[order]
    most = 2 * GREATEST  # beyond which no product may overflow
    short = np.round(np.minimum(begin, most) * 1e9) >= np.round(np.minimum(end, most) * 1e9)
    wrong = (user >= users) | (begin < 0) | short | (end > GREATEST)
    overlap = (user[1:] == user[:-1]) & (begin[1:] < end[:-1])
    return None if wrong.any() or overlap.any() else Intervals(user, begin, end)


def _chunks(text: str) -> Iterator[tuple[Column, ...]]:
    """The three columns, some lines at a time. ValueError: one is not there once, or not of plain numbers."""
    rows = filter(None, csv.reader(io.StringIO(text, newline=""), strict=True))
    names = [name.strip() for name in next(rows, [])]
    places = [names.index(name) for name in COLUMNS]
    while lines := list(islice(rows, CHUNK)):
        columns = list(zip(*lines, strict=True))
        if len(columns) != len(names) or len(set(names)) < len(names):
            raise ValueError("columns")
        user, begin, end = (columns[place] for place in places)
        if not (_DIGITS.issuperset("".join(user)) and _DECIMAL.issuperset("".join(begin + end))):
            raise ValueError("signs")
        yield (
            np.fromiter(map(int, user), np.int64, len(lines)),
            *(np.fromiter(map(float, column), np.float64, len(lines)) for column in (begin, end)),
        )


def _by_lines(text: str, file: str, users: int) -> dict[int, list[tuple[float, float]]]:
    """What a file says, or all that is wrong with it."""
    rows = _rows(text, file)
    header_line, header = next(rows, (1, []))
    names = [name.strip() for name in header]
    for name in COLUMNS:
        if names.count(name) != 1:
            what = "there twice" if name in names else "missing"
            message = f"the column {name} is {what}: the header is {','.join(COLUMNS)}"
            raise refusal(file, header_line, message)
    found: dict[int, list[_Interval]] = {}
    problems: list[Problem] = []
    for line, row in rows:
        try:
            if len(row) != len(names):
                raise _Wrong("", f"{len(row)} values, but the header names {len(names)} columns")
            user, interval = _interval(dict(zip(names, row, strict=True)), line, users)
            found.setdefault(user, []).append(interval)
        except _Wrong as wrong:
            problems.append(Problem(file, line, *wrong.args))
    for user, listed in found.items():
        listed.sort()
        problems += _overlaps(file, user, listed)
    if problems:
        raise ScenarioError(sorted(problems, key=lambda problem: problem.line or 0)[:MOST])
    return {user: [(each.from_s, each.to_s) for each in listed] for user, listed in found.items()}


def numbered(users: int) -> str:
    """Which users there are, in words."""
    return f"users are 0 to {users - 1}" if users > 1 else "the only user is 0"


def _rows(text: str, file: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers, counted from 1."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise refusal(file, reader.line_num, f"not CSV: {error}") from None


def _interval(row: dict[str, str], line: int, users: int) -> tuple[int, _Interval]:
    user = row["user"].strip()
    if not re.fullmatch("[0-9]{1,18}", user):
        raise _Wrong("user", f"must be a whole number, not {show(user)}")
    if int(user) >= users:
        raise _Wrong("user", f"user={user} is not there: {numbered(users)}")
    from_s, to_s = _seconds(row, "from_s"), _seconds(row, "to_s")
    if to_s <= from_s:
        raise _Wrong("to_s", f"must be above from_s={from_s:.15g}, not {to_s:.15g}")
    if round(to_s * 1e9) == round(from_s * 1e9):
        raise _Wrong("to_s", f"must be a nanosecond above from_s={from_s:.15g}, not {to_s:.15g}")
    return int(user), _Interval(from_s, to_s, line)


def _seconds(row: dict[str, str], column: str) -> float:
    text = row[column].strip()
    if not _NUMBER.fullmatch(text):
        raise _Wrong(column, f"must be a number, not {show(text)}")
    value = float(text)
    if not math.isfinite(value):
        raise _Wrong(column, f"must be a finite number, not {cut(text)}")
    if not 0 <= value <= GREATEST:
        bound = "at least 0" if value < 0 else f"at most {GREATEST:g}"
        raise _Wrong(column, f"must be {bound}, not {cut(text)}")
    return value


def _overlaps(file: str, user: int, listed: list[_Interval]) -> Iterator[Problem]:
    """A user's sorted intervals that begin before an earlier one is over."""
    latest = listed[0]
    for interval in listed[1:]:
        if interval.from_s < latest.to_s:
            first, second = sorted((latest, interval), key=lambda each: each.line)
            when = f"from {first.from_s:.15g} to {first.to_s:.15g}"
            message = f"user {user} is online {when} already, by line {first.line}"
            yield Problem(file, second.line, "", message)
        latest = max(latest, interval, key=lambda each: each.to_s)
