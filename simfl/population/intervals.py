"""Intervals in which users are online, from a CSV file with the header `user,from_s,to_s`: one a line."""

import csv
import re
from array import array
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path

import numpy as np

from simfl.blocks import GREATEST
from simfl.errors import Problem, ScenarioError, show, text_of
from simfl.population.csv_files import (
    MAX_PROBLEMS,
    Cells,
    Column,
    Wrong,
    by_columns,
    by_lines,
    number,
    numbers,
)

COLUMNS = ("user", "from_s", "to_s")
KEY = "population.availability.file"

_DIGITS = frozenset("0123456789")


class Intervals(Mapping[int, list[tuple[float, float]]]):
    """User -> its times online: (from, to), both seconds since the start of the run, in order of time.
    Held by columns, in order of users, then of time: objects would take ten times 16 bytes an interval."""

    def __init__(self, users: Column, begins: Column, ends: Column) -> None:
        self._users = np.unique(users)
        after = int(self._users[-1]) + 1 if users.size else 0
        self._first = array("q", np.searchsorted(users, np.arange(after + 1)).tobytes())
        self._begins, self._ends = (array("d", column.tobytes()) for column in (begins, ends))

    def __getitem__(self, user: int) -> list[tuple[float, float]]:
        if not 0 <= user < len(self._first) - 1 or self._first[user] == self._first[user + 1]:
            raise KeyError(user)
        own = slice(self._first[user], self._first[user + 1])
        return list(zip(self._begins[own], self._ends[own], strict=True))

    def __iter__(self) -> Iterator[int]:
        return map(int, self._users)

    def __len__(self) -> int:
        return len(self._users)


def read_intervals(file: str, users: int) -> Intervals:
    """Return the intervals of so many users, which may touch, but do not overlap. ScenarioError if the file
    cannot be read, a column is missing, or a line of it is wrong."""
    text = text_of(Path(file), file, KEY)
    try:
        return _by_columns(text, users)
    except (ValueError, OverflowError, csv.Error):
        problems = sorted(_problems(text, file, users), key=lambda problem: problem.line or 0)
        raise ScenarioError(problems[:MAX_PROBLEMS]) from None


def _by_columns(text: str, users: int) -> Intervals:
    """Return the intervals of a file; a ValueError if anything is wrong with it."""
    nothing = np.empty(0, np.int64), np.empty(0), np.empty(0)
    user, begin, end = map(np.concatenate, zip(nothing, *_chunks(text), strict=True))
    order = np.lexsort((end, begin, user))
    user, begin, end = user[order], begin[order], end[order]
    most = 2 * GREATEST  # beyond which no product may overflow
    short = np.round(np.minimum(begin, most) * 1e9) >= np.round(np.minimum(end, most) * 1e9)
    wrong = (user >= users) | (begin < 0) | short | (end > GREATEST)
    overlap = (user[1:] == user[:-1]) & (begin[1:] < end[:-1])
    if wrong.any() or overlap.any():
        raise ValueError("intervals")
    return Intervals(user, begin, end)


def _chunks(text: str) -> Iterator[tuple[Column, ...]]:
    """Yield the three columns, some lines at a time; ValueError for any that does not hold plain numbers."""
    for cells in by_columns(text):
        if not cells.keys() >= {*COLUMNS} or not _DIGITS.issuperset("".join(cells["user"])):
            raise ValueError("header or signs")
        user = np.array(list(map(int, cells["user"])), np.int64)
        yield user, numbers(cells["from_s"]), numbers(cells["to_s"])


def _problems(text: str, file: str, users: int) -> list[Problem]:
    """Return all that is wrong with a file; raise a ScenarioError where its lines cannot be told apart."""
    intervals: dict[int, list[tuple[float, float, int]]] = {}
    problems: list[Problem] = []

    def take(line: int, row: Cells) -> None:
        user, from_s, to_s = _interval(row, users)
        intervals.setdefault(user, []).append((from_s, to_s, line))

    by_lines(text, file, COLUMNS, problems, take)
    for user, listed in intervals.items():
        problems += _overlaps(file, user, sorted(listed))
    return problems


def numbered(users: int) -> str:
    return f"users are 0 to {users - 1}" if users > 1 else "the only user is 0"


def _interval(row: Cells, users: int) -> tuple[int, float, float]:
    user = row["user"].strip()
    if not re.fullmatch("[0-9]{1,18}", user):
        raise Wrong("user", f"must be a whole number, not {show(user)}")
    if int(user) >= users:
        raise Wrong("user", f"user={user} is not there: {numbered(users)}")
    from_s, to_s = (number(row, name, 0, GREATEST) for name in ("from_s", "to_s"))
    if to_s <= from_s:
        raise Wrong("to_s", f"must be above from_s={from_s:.15g}, not {to_s:.15g}")
    if round(to_s * 1e9) == round(from_s * 1e9):
        raise Wrong("to_s", f"must be a nanosecond above from_s={from_s:.15g}, not {to_s:.15g}")
    return int(user), from_s, to_s


def _overlaps(file: str, user: int, listed: list[tuple[float, float, int]]) -> Iterator[Problem]:
    """Yield a problem for each of a user's sorted intervals that begins before an earlier one is over."""
    latest = listed[0]
    for interval in listed[1:]:
        if interval[0] < latest[1]:
            (from_s, to_s, line), (_, _, later) = sorted((latest, interval), key=itemgetter(2))
            message = f"user {user} is online from {from_s:.15g} to {to_s:.15g} already, by line {line}"
            yield Problem(file, later, "", message)
        latest = max(latest, interval, key=itemgetter(1))
