"""Intervals in which users are online, from a CSV file with the header `user,from_s,to_s`: one a line.

A column `period_s` tells for each user after how many seconds its intervals begin again.
"""

import csv
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simfl.config.blocks import GREATEST, LEAST
from simfl.config.csv_files import MAX_PROBLEMS, Cells, Column, Wrong, by_columns, by_lines, number, numbers
from simfl.errors import Problem, ScenarioError, refusal, show, text_of
from simfl.virtual_time import NS

COLUMNS = ("user", "from_s", "to_s")
PERIOD = "period_s"

_DIGITS = frozenset("0123456789")


class Intervals(Mapping[int, list[tuple[float, float]]]):
    """Entry of the file (a user) -> its times online: (from, to), both seconds since the start of the run or
    of its period, in order of time.

    Held by columns, in order of entries, then of time: objects would take ten times 16 bytes an interval.
    period: seconds, the same for all intervals of an entry; infinite where it does not wrap. An interval
    without length is none, but its entry is there.
    """

    def __init__(self, users: Column, begins: Column, ends: Column, period: Column) -> None:
        entries, first = np.unique(users, return_index=True)
        begins, ends = (np.rint(column * NS).astype(np.int64) for column in (begins, ends))
        lasts = begins < ends
        before = np.concatenate(([0], np.cumsum(lasts)))  # intervals that last, before each line
        period_ns = np.where(np.isinf(period), 0, np.rint(np.minimum(period, GREATEST) * NS))[first]
        self._entries = array("q", entries.astype(np.int64).tobytes())
        self._first = array("q", before[np.append(first, users.size)].astype(np.int64).tobytes())
        self._begins, self._ends = (array("q", column[lasts].tobytes()) for column in (begins, ends))
        self._period = array("q", np.maximum(period_ns, ~np.isinf(period[first])).astype(np.int64).tobytes())

    def __getitem__(self, entry: int) -> list[tuple[float, float]]:
        at = bisect_left(self._entries, entry)
        if self._entries[at : at + 1] != array("q", [entry]):
            raise KeyError(entry)
        own = range(self._first[at], self._first[at + 1])
        return [(self._begins[i] / NS, self._ends[i] / NS) for i in own]

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def places(self, users: int) -> NDArray[np.int64]:
        """Return each user's place in the order of entries, its own number's; -1 of one that has none."""
        found = np.full(users, -1)
        found[np.array(self._entries, np.int64)] = np.arange(len(self))
        return found

    def any(self) -> NDArray[np.bool_]:
        """Return of each entry, in order, whether it has intervals."""
        return np.diff(np.array(self._first)) > 0

    def at(self, place: int, now: int) -> tuple[bool, int | None]:
        """Return whether the entry at a place is online at a time, and until when surely; None: for ever."""
        first, after = self._first[place], self._first[place + 1]
        if first == after:
            return False, None
        period = self._period[place]
        turn = now - now % period if period else 0
        i = bisect_right(self._begins, now - turn, first, after)
        if i > first and now - turn < self._ends[i - 1]:
            whole = self._ends[first] - self._begins[first] == period
            return True, None if whole else turn + self._ends[i - 1]
        if i < after:
            return False, turn + self._begins[i]
        return False, turn + period + self._begins[first] if period else None


def read_intervals(file: str, users: int | None, period_s: float | None = None) -> Intervals:
    """Return the intervals of a file, which may touch, but do not overlap. ScenarioError if the file cannot
    be read, a column is missing, or a line of it is wrong.

    users: their number, where the column `user` has theirs; None where it has those of entries, whatever they
    are: an interval of theirs may be empty. period_s: of all, where the file has none.
    """
    text = text_of(Path(file), file)
    try:
        return _by_columns(text, users, period_s)
    except (ValueError, OverflowError, csv.Error):
        problems = sorted(_problems(text, file, users, period_s), key=lambda problem: problem.line or 0)
        raise ScenarioError(problems[:MAX_PROBLEMS]) from None


def _by_columns(text: str, users: int | None, period_s: float | None) -> Intervals:
    """Return the intervals of a file; a ValueError if anything is wrong with it."""
    nothing = np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0)
    user, begin, end, period = map(np.concatenate, zip(nothing, *_chunks(text, period_s), strict=True))
    order = np.lexsort((end, begin, user))
    user, begin, end, period = user[order], begin[order], end[order], period[order]
    most = 2 * GREATEST  # beyond which no product may overflow
    short = np.round(np.minimum(begin, most) * 1e9) >= np.round(np.minimum(end, most) * 1e9)
    if users is None:
        short &= begin != end
    wrong = (begin < 0) | short | (end > np.minimum(period, GREATEST))
    if users is not None:
        wrong |= user >= users
    another_period = (user[1:] == user[:-1]) & (period[1:] != period[:-1])
    lasts = begin != end
    whose, starts, stops = user[lasts], begin[lasts], end[lasts]
    overlap = (whose[1:] == whose[:-1]) & (starts[1:] < stops[:-1])
    if wrong.any() or another_period.any() or overlap.any():
        raise ValueError("intervals")
    return Intervals(user, begin, end, period)


def _chunks(text: str, period_s: float | None) -> Iterator[tuple[Column, ...]]:
    """Yield the four columns, some lines at a time; ValueError for any that does not hold plain numbers."""
    for cells in by_columns(text, (*COLUMNS, PERIOD)):
        if not cells.keys() >= {*COLUMNS} or not _DIGITS.issuperset("".join(cells["user"])):
            raise ValueError("header or signs")
        user = np.array(list(map(int, cells["user"])), np.int64)
        period = np.full(len(user), period_s or np.inf)
        if PERIOD in cells:
            period = numbers(cells[PERIOD])
            if (period_s is not None and period.size) or not ((period >= LEAST) & (period <= GREATEST)).all():
                raise ValueError("period")
        yield user, numbers(cells["from_s"]), numbers(cells["to_s"]), period


def _problems(text: str, file: str, users: int | None, period_s: float | None) -> list[Problem]:
    """Return all that is wrong with a file; raise a ScenarioError where its lines cannot be told apart."""
    intervals: dict[int, list[tuple[float, float, int]]] = {}
    periods: dict[int, tuple[float, int]] = {}
    problems: list[Problem] = []

    def take(line: int, row: Cells) -> None:
        if PERIOD in row and period_s is not None:
            raise refusal(file, 1, f"the column {PERIOD} is there, and the scenario gives {period_s:g} s too")
        user, from_s, to_s = _interval(row, users)
        period = number(row, PERIOD, LEAST, GREATEST) if PERIOD in row else period_s
        if period is not None:
            earlier, first = periods.setdefault(user, (period, line))
            if earlier != period:
                raise Wrong(PERIOD, f"must be {earlier:.15g} as in line {first}, not {period:.15g}")
            if to_s > period:
                raise Wrong("to_s", f"must be at most {PERIOD}={period:.15g}, not {to_s:.15g}")
        if from_s < to_s:
            intervals.setdefault(user, []).append((from_s, to_s, line))

    by_lines(text, file, COLUMNS, problems, take, optional=[PERIOD])
    for user, listed in intervals.items():
        problems += _overlaps(file, user, sorted(listed))
    return problems


def numbered(users: int) -> str:
    return f"users are 0 to {users - 1}" if users > 1 else "the only user is 0"


def _interval(row: Cells, users: int | None) -> tuple[int, float, float]:
    user = row["user"].strip()
    if not re.fullmatch("[0-9]{1,18}", user):
        raise Wrong("user", f"must be a whole number, not {show(user)}")
    if users is not None and int(user) >= users:
        raise Wrong("user", f"user={user} is not there: {numbered(users)}")
    from_s, to_s = (number(row, name, 0, GREATEST) for name in ("from_s", "to_s"))
    if users is None and to_s == from_s:
        return int(user), from_s, to_s
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
