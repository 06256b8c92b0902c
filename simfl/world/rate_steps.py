"""Rates of links as steps in time, from a CSV file: a header `user,from_s,up_mbps,down_mbps`, then a step a
line. A file without `user` has one entry; `latency_s` and `period_s` may be there too.
"""

import csv
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from simfl.config.blocks import GREATEST, Draws
from simfl.config.csv_files import MAX_PROBLEMS, Cells, Wrong, by_columns, by_lines, number, numbers
from simfl.errors import Problem, ScenarioError, refusal, text_of
from simfl.virtual_time import NS
from simfl.world.timelines import FOR_EVER

NEEDED = ("from_s", "up_mbps", "down_mbps")
BOUNDS = {
    "user": 2**31 - 1, "from_s": GREATEST, "up_mbps": 1e8, "down_mbps": 1e8, "latency_s": GREATEST,
    "period_s": GREATEST,
}  # fmt: skip
"""Columns, each with its greatest value; the least is 0."""

Step = tuple[float, float, float | None]  # up Mbit/s, down Mbit/s, latency in seconds where it is given


class RateSteps:
    """The entries of a file, numbered from 0 in the order of their users. Held by columns, in order of
    entries, then of time: objects would take ten times 32 bytes a step."""

    def __init__(self, columns: dict[str, Draws]) -> None:
        """Take the columns of a file; a ValueError if anything is wrong with them."""
        user = columns.get("user", np.zeros(columns["from_s"].size))
        for name, values in columns.items():
            if not ((values >= 0) & (values <= BOUNDS[name])).all():
                raise ValueError(name)
        from_ns = np.round(columns["from_s"] * NS).astype(np.int64)
        order = np.lexsort((from_ns, user))
        user, from_ns = user[order], from_ns[order]
        period_ns = np.round(columns.get("period_s", np.zeros(user.size)) * NS).astype(np.int64)[order]
        same = user[1:] == user[:-1]
        again = same & (from_ns[1:] == from_ns[:-1])
        other = same & (period_ns[1:] != period_ns[:-1])
        late = (period_ns > 0) & (from_ns >= period_ns)
        if not user.size or (user % 1).any() or again.any() or other.any() or late.any():
            raise ValueError("steps")
        first = np.flatnonzero(np.append(True, ~same))
        self._first = array("q", np.append(first, user.size).astype(np.int64).tobytes())
        self._period_ns = array("q", period_ns[first].tobytes())
        self._from_ns = array("q", from_ns.tobytes())
        self._up, self._down = (array("d", columns[x][order].tobytes()) for x in ("up_mbps", "down_mbps"))
        latency_s = columns.get("latency_s")
        self._latency_s = None if latency_s is None else array("d", latency_s[order].tobytes())

    def __len__(self) -> int:
        return len(self._period_ns)

    def at(self, entry: int, now: int) -> tuple[Step | None, int]:
        """Return the step that holds, None before the first one, and until when (nanoseconds) it does."""
        period, end = self._period_ns[entry], self._first[entry + 1]
        begin = now - now % period if period else 0
        place = bisect_right(self._from_ns, now - begin, self._first[entry], end)
        after = begin + period if period else FOR_EVER
        until = begin + self._from_ns[place] if place < end else after
        if place == self._first[entry]:
            return None, until
        latency_s = None if self._latency_s is None else self._latency_s[place - 1]
        return (self._up[place - 1], self._down[place - 1], latency_s), until


def read_steps(file: str, key: str = "") -> RateSteps:
    """Return the steps of a file, which the scenario names at `key`. ScenarioError if it cannot be read, a
    column is missing, or a line of it is wrong."""
    text = text_of(Path(file), file, key)
    try:
        return RateSteps(_joined(_chunks(text)))
    except (ValueError, csv.Error):
        return RateSteps(_joined([_line_by_line(text, file)]))


def _chunks(text: str) -> Iterator[dict[str, Draws]]:
    """Yield the columns of plain numbers, some lines at a time; ValueError for any that is none."""
    for cells in by_columns(text):
        if not cells.keys() >= {*NEEDED}:
            raise ValueError("header")
        yield {name: numbers(cells[name]) for name in BOUNDS if name in cells}


def _joined(chunks: Iterable[dict[str, Draws]]) -> dict[str, Draws]:
    listed = list(chunks)
    return {name: np.concatenate([chunk[name] for chunk in listed]) for name in listed[0]}


def _line_by_line(text: str, file: str) -> dict[str, Draws]:
    """Return the columns of a file of correct lines; a ScenarioError names all others."""
    steps: list[tuple[dict[str, float], int]] = []
    problems: list[Problem] = []

    def take(line: int, row: Cells) -> None:
        step = {name: number(row, name, 0, most) for name, most in BOUNDS.items() if name in row}
        if step.get("user", 0) % 1:
            raise Wrong("user", f"must be a whole number, not {step['user']:.15g}")
        if step.get("period_s") and round(step["from_s"] * NS) >= round(step["period_s"] * NS):
            late = f"must be above from_s={step['from_s']:.15g}, or 0, not {step['period_s']:.15g}"
            raise Wrong("period_s", late)
        steps.append((step, line))

    by_lines(text, file, NEEDED, problems, take)
    problems += _contradictions(file, steps)
    if not problems and not steps:
        raise refusal(file, None, "no step below the header")
    if problems:
        raise ScenarioError(sorted(problems, key=lambda problem: problem.line or 0)[:MAX_PROBLEMS])
    return {name: np.array([step[name] for step, _ in steps]) for name in steps[0][0]}


def _contradictions(file: str, steps: list[tuple[dict[str, float], int]]) -> Iterator[Problem]:
    """Yield a problem for each step that an earlier line has otherwise."""
    periods: dict[float, tuple[float, int]] = {}
    begun: dict[tuple[float, int], int] = {}
    for step, line in steps:
        user = step.get("user", 0)
        who = f"user {user:.15g}" if "user" in step else "everybody"
        period_s, by = periods.setdefault(user, (step.get("period_s", 0), line))
        if step.get("period_s", 0) != period_s:
            yield Problem(file, line, "period_s", f"must be {period_s:.15g}, as in line {by} for {who}")
        first = begun.setdefault((user, round(step["from_s"] * NS)), line)
        if first != line:
            message = f"{who} has rates from {step['from_s']:.15g} on already, by line {first}"
            yield Problem(file, line, "from_s", message)
