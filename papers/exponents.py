"""How counts grow, with fitted exponents beside the stated ones.

A count c(N, d) of a round is affine in d. Two values of d separate the term with d from the rest (keys,
shares, lists), so that each term of a sum such as O(dN + sN^2) is compared by itself: the exponent of N of
a line through (log N, log count), beside that of a line through the stated term at the same N. An O() is an
upper limit: ours may be smaller. Terms that the paper leaves out beside larger ones are not judged. All
work on a vector is counted by its elements, so the term with d grows as d by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2

import numpy as np

from papers.counted import Round
from papers.entry import Cell

SLACK = 0.02
"""By how much a fitted exponent may exceed the stated one: lower terms are in it."""

Term = Callable[[int], float] | None
Stated = tuple[str, Term, Term]
"""As printed; what d and what s is multiplied by, None where the paper has no such term."""


def one(N: int) -> float:
    return 1.0


def linear(N: int) -> float:
    return float(N)


def square(N: int) -> float:
    return float(N) ** 2


def log_(N: int) -> float:
    return log2(N)


def log_squared(N: int) -> float:
    return log2(N) ** 2


def n_log(N: int) -> float:
    return N * log2(N)


def n_log_squared(N: int) -> float:
    return N * log2(N) ** 2


@dataclass(frozen=True)
class Quantity:
    """A row of a table: what it is, how it is counted, and what is stated for each protocol, if anything.

    printed: False of a part of a row, which is shown beside it and not judged."""

    label: str
    of: Callable[[Round], float]
    stated: tuple[Stated | None, ...]
    printed: bool = True


@dataclass(frozen=True)
class Grid:
    """Where is counted. users: every N; lengths: every d; round_of(protocol, N, d): a counted round; names:
    protocol -> as the paper calls it, in the order of its columns."""

    users: tuple[int, ...]
    lengths: tuple[int, ...]
    round_of: Callable[[str, int, int], Round]
    names: Mapping[str, str]


def parts(grid: Grid, of: Callable[[Round], float], protocol: str, N: int) -> tuple[float, float]:
    """c(N, d) = slope d + rest, from the first and the last d, as (slope, rest)."""
    low, high = grid.lengths[0], grid.lengths[-1]
    first, last = (of(grid.round_of(protocol, N, length)) for length in (low, high))
    slope = (last - first) / (high - low)
    return slope, first - slope * low


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """b of the line log y = a + b log x."""
    return round(float(np.polyfit(np.log(x), np.log(y), 1)[0]), 4) + 0.0


def exponent_of_d(grid: Grid, of: Callable[[Round], float], protocol: str) -> float:
    """The same of what a count gains from each d to the next, against what d gains, for the largest N. A line
    through the counts less their rest would have 1 at any growth: its ends are where the rest is from."""
    counts = [of(grid.round_of(protocol, grid.users[-1], length)) for length in grid.lengths]
    return exponent(np.diff(grid.lengths).tolist(), np.diff(counts).tolist())


def cells_of(grid: Grid, quantities: tuple[Quantity, ...]) -> list[Cell]:
    """Exponents of every term of every cell of a table."""
    cells = list[Cell]()
    for row in quantities:
        made = len(cells)
        for (protocol, name), stated in zip(grid.names.items(), row.stated, strict=True):
            if stated is None:
                continue
            printed, d_term, s_term = stated
            label = f"{row.label}, {name}, {printed}"
            slopes, rests = zip(*(parts(grid, row.of, protocol, N) for N in grid.users), strict=True)
            cells.append(_term(grid.users, f"{label}: exponent of N, terms with d", d_term, slopes))
            if d_term and slopes[-1]:
                ours = exponent_of_d(grid, row.of, protocol)
                words = f"{label}: exponent of d"
                cells.append(Cell(words, 1.0, ours, "exponent", "at most", SLACK, basis="by construction"))
            if s_term:
                cells.append(_term(grid.users, f"{label}: exponent of N, other terms", s_term, rests))
        if not row.printed:
            cells[made:] = [replace(cell, paper=None, compare="none") for cell in cells[made:]]
    return cells


def _term(users: tuple[int, ...], label: str, stated: Term, counts: Sequence[float]) -> Cell:
    there = counts[-1] > 1e-6
    if stated is None:
        return Cell(label, "no term", "a term" if there else "no term", compare="order")
    if not there:
        return Cell(label, "a term", "no term", compare="none", remark="only seeds are kept")
    remark = f"counted at N = {users[0]} .. {users[-1]}: " + ", ".join(f"{n:.4g}" for n in counts)
    limit, found = exponent(users, [stated(N) for N in users]), exponent(users, counts)
    return Cell(label, limit, found, "exponent", "at most", SLACK, remark)
