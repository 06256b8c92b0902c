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
    """Return 1 / a modulo p, [n], of non-zero residues: 3 n products and one inverse (Montgomery's trick).

    >>> inverses(np.array([1, 2, 3]), 7).tolist()
    [1, 4, 5]
    """
    if a.size < 2:
        return np.array([pow(int(x), -1, p) for x in a], np.int64)
    half = a.size // 2
    left, right = a[:half], a[half : 2 * half]
    last = a[2 * half :]
    inverse = inverses(np.concatenate([left * right % p, last]), p)
    pairs = inverse[:half]
    return np.concatenate([pairs * right % p, pairs * left % p, inverse[half:]])


def echelon(A: Residues, p: int, columns: NDArray[np.int64] | None = None) -> tuple[Residues, list[int]]:
    """Return the reduced row echelon form of A, [m, n], and its pivots, one a row: [rank, n] and [rank].

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
    """Return the rank of A, [m, n], modulo p."""
    return len(echelon(A, p)[1])


class RowSpace:
    """The row space of 0/1 rows that come one by one: its reduced row echelon form modulo p, kept as such.

    `pivots[i]` is the pivot column of `rows[i]`.
    """

    def __init__(self, users: int, p: int) -> None:
        self.p = p
        self.pivots: list[int] = []
        self._rows = np.empty((0, users), np.int64)  # with room for more, twice as much whenever it is full
        self._pivot_row = np.full(users, -1)

    @property
    def rows(self) -> Residues:
        """[rank, users]; valid until the next `append`."""
        return self._rows[: len(self.pivots)]

    def append(self, members: NDArray[np.int64]) -> bool:
        """Add the row that is 1 at `members`; return True if the space grew."""
        known = self._pivot_row[members]
        row = -self.rows[known[known >= 0]].sum(axis=0)
        row[members] += 1
        row %= self.p
        if not row.any():
            return False
        pivot = int((row != 0).argmax())
        row = row * pow(int(row[pivot]), -1, self.p) % self.p
        others = np.flatnonzero(self.rows[:, pivot])
        self.rows[others] = (self.rows[others] - self.rows[others, pivot][:, None] * row) % self.p
        rank = len(self.pivots)
        if rank == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty((max(8, rank), row.size), np.int64)])
        self._rows[rank], self._pivot_row[pivot] = row, rank
        self.pivots.append(pivot)
        return True
