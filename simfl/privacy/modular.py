"""Linear algebra modulo a prime below 2^31, vectorised: products of two residues fit in int64.

The rank of an integer matrix modulo a prime never exceeds its rank over the rationals, and falls short of it
only if the prime divides every one of its largest non-zero minors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PRIMES = (2**31 - 1, 2**31 - 19, 2**31 - 61)
"""The largest three below 2^31."""

Residues = NDArray[np.int64]


def inverses(a: Residues, p: int) -> Residues:
    """1 / a modulo p, [n], of non-zero residues: about 3 n products and one inverse (Montgomery's trick)."""
    if a.size == 0:
        return a
    if a.size == 1:
        return np.array([pow(int(a[0]), -1, p)], np.int64)
    half = a.size // 2
    left, right = a[:half], a[half : 2 * half]
    last = a[2 * half :]
    inverse = inverses(np.concatenate([left * right % p, last]), p)
    pairs = inverse[:half]
    return np.concatenate([pairs * right % p, pairs * left % p, inverse[half:]])


def echelon(A: Residues, p: int, columns: NDArray[np.int64] | None = None) -> tuple[Residues, list[int]]:
    """The reduced row echelon form of A, [m, n], and its pivots, one a row: [rank, n] and [rank].

    `columns`: the order in which pivot columns are looked for (all, from left to right). Where it names only
    some, the rows returned are those with a pivot there, and the columns' rank is how many there are.
    """
    R, row = A % p, 0
    pivots: list[int] = []
    for c in range(R.shape[1]) if columns is None else columns.tolist():
        if row == R.shape[0]:
            break
        found = np.flatnonzero(R[row:, c])
        if not found.size:
            continue
        source = row + int(found[0])
        pivot = R[source] * pow(int(R[source, c]), -1, p) % p
        R[source] = R[row]
        R[row] = pivot
        others = np.flatnonzero(R[:, c])
        others = others[others != row]
        R[others] = (R[others] - R[others, c][:, None] * pivot) % p
        pivots.append(c)
        row += 1
    return R[:row], pivots


def rank(A: Residues, p: int) -> int:
    """The rank of A, [m, n], modulo p."""
    return len(echelon(A, p)[1])


class RowSpace:
    """The row space of 0/1 rows that come one by one: its reduced row echelon form modulo p, kept as such.

    `pivots[i]` is the pivot column of `rows[i]`; `sources[i]` says which of the rows given added it.
    """

    def __init__(self, users: int, p: int) -> None:
        self.p = p
        self.pivots: list[int] = []
        self.sources: list[int] = []
        self._given = 0
        self._rows = np.empty((0, users), np.int64)
        self._pivot_row = np.full(users, -1)

    @property
    def rows(self) -> Residues:
        """[rank, users]; valid until the next `append`."""
        return self._rows[: len(self.pivots)]

    def append(self, members: NDArray[np.int64]) -> bool:
        """Adds the row that is 1 at `members`; whether the space grew."""
        self._given += 1
        known = self._pivot_row[members]
        row = -self.rows[known[known >= 0]].sum(axis=0)
        row[members] += 1
        row %= self.p
        free = np.flatnonzero(row)
        if not free.size:
            return False
        pivot = int(free[0])
        row = row * pow(int(row[pivot]), -1, self.p) % self.p
        others = np.flatnonzero(self.rows[:, pivot])
        self.rows[others] = (self.rows[others] - self.rows[others, pivot][:, None] * row) % self.p
        if len(self.pivots) == len(self._rows):
            spare = np.empty((max(8, len(self._rows)), row.size), np.int64)
            self._rows = np.concatenate([self._rows, spare])
        self._rows[len(self.pivots)] = row
        self._pivot_row[pivot] = len(self.pivots)
        self.pivots.append(pivot)
        self.sources.append(self._given - 1)
        return True
