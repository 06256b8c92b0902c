"""When users are online, from a CSV file: a header `user,from_s,to_s`, then an interval a line.

The order of lines and of columns is free, and other columns are ignored. Users that are not in the file are
never online. What is wrong is reported with the file's line, as for a scenario.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simfl.errors import cut
from simfl.scenario.blocks import GREATEST
from simfl.scenario.reading import text_of
from simfl.scenario.tree import Problem, ScenarioError, refusal, show

COLUMNS = ("user", "from_s", "to_s")
KEY = "population.availability.file"
MOST = 20
"""So many problems of one file are reported."""

_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?inf(inity)?|nan", re.I)


@dataclass(frozen=True, slots=True, order=True)
class _Interval:
    from_s: float
    to_s: float
    line: int


class _Wrong(Exception):
    """A value that cannot be taken: its column and why."""


def read_intervals(file: str, users: int) -> dict[int, list[tuple[float, float]]]:
    """User -> when it is online: (from, to), both seconds since the start of the run, in order of time.

    Intervals may touch, but they do not overlap.

    Raises:
        ScenarioError: the file cannot be read, a column is missing, or a line of it is wrong.
    """
    rows = _rows(file)
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


def _rows(file: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers, counted from 1."""
    reader = csv.reader(io.StringIO(text_of(Path(file), file, KEY), newline=""), strict=True)
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
