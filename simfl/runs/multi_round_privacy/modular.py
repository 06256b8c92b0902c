"""Linear algebra modulo a prime below 2^31, vectorised, and what it proves of integers.

The rank of an integer matrix modulo a prime never exceeds its rank over the rationals, and falls short of it
only if the prime divides every one of its largest non-zero minors.

A combination z of rounds proves that P^T z is non-zero on certain users only: an upper bound beyond doubt. It
is found by p-adic lifting (Dixon 1982, "Exact solution of linear equations using p-adic expansions") of one
solution modulo a prime, and checked in Python's integers, so nothing of how it was found needs to be trusted.
"""

from collections import Counter
from collections.abc import Sequence
from math import isqrt, log2

import numpy as np
from numpy.typing import NDArray

PRIMES = (2**31 - 1, 2**31 - 19, 2**31 - 61)  # the largest three below 2^31

Ints = NDArray[np.int64]
Residues = Ints  # below the prime: two have a product that fits
Rows = Sequence[Ints]  # each round's users


class Unlucky(ArithmeticError):
    """Something holds modulo this prime that does not hold over the rationals: take another one."""


def inverses(a: Residues, p: int) -> Residues:
    """Return 1 / a modulo p, [n], of non-zero residues: 3 n products and one inverse (Montgomery's trick).

    >>> inverses(np.array([1, 2, 3]), 7).tolist()
    [1, 4, 5]
    """
    if a.size < 2:
        return np.array([pow(int(x), -1, p) for x in a], np.int64)
    half = a.size // 2
    left, right, last = np.split(a, [half, 2 * half])
    inverse = inverses(np.concatenate([left * right % p, last]), p)
    pairs = inverse[:half]
    return np.concatenate([pairs * right % p, pairs * left % p, inverse[half:]])


def echelon(A: Residues, p: int, columns: Ints | None = None) -> tuple[Residues, list[int]]:
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
        R[source], R[row] = R[row], 0
        others = np.flatnonzero(R[:, c])
        R[others] = (R[others] - R[others, c][:, None] * pivot) % p
        R[row] = pivot
        pivots.append(c)
        row += 1
    return R[:row], pivots


def rank(A: Residues, p: int) -> int:
    return len(echelon(A, p)[1])


class RowSpace:
    """The row space of rows that come one by one: its reduced row echelon form modulo p, kept as such.

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

    def append(self, members: Ints, values: Residues | None = None) -> bool:
        """Add the row that has `values` at `members`, or 1 at each; return True if the space grew."""
        known = self._pivot_row[members]
        if values is None:
            row = -self.rows[known[known >= 0]].sum(axis=0)
            row[members] += 1
        else:  # residue by residue: a product fits, and a sum of 2^31 of them
            row = -(self.rows[known[known >= 0]] * values[known >= 0, None] % self.p).sum(axis=0)
            row[members] += values
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


def support(rows: Rows, z: Sequence[int]) -> tuple[int, ...]:
    """Return the users i with (P^T z)_i != 0, ascending, in exact integers. rows: each round's users; z: [t].

    >>> support([np.array([0, 1]), np.array([1, 2])], [1, -1])
    (0, 2)
    """
    total = Counter[int]()
    for members, weight in zip(rows, z, strict=True):
        total.update(dict.fromkeys(members.tolist(), weight))
    return tuple(sorted(user for user, value in total.items() if value))


def combination(rows: Rows, inside: NDArray[np.bool_], p: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return z, [t] coprime integers, and the users where P^T z is non-zero: one or more, all of them inside.

    rows: each round's users, linearly independent modulo p. inside: [users]. Raises Unlucky if there is no
    such z (though there is one modulo p).
    """
    space = RowSpace(inside.size, p)
    for members in rows:
        space.append(members)
    order = np.concatenate([np.flatnonzero(~inside), np.flatnonzero(inside)])
    pivots = echelon(space.rows, p, order)[1]
    if not inside[pivots[-1]]:
        raise Unlucky
    M = np.stack([np.bincount(members, minlength=inside.size) for members in rows])
    # The last pivot lies inside; where all the others are zero, so is everything outside.
    target = np.zeros(len(pivots), np.int64)
    target[-1] = 1
    z = solve(M[:, pivots].T, target, p)
    users = support(rows, z)
    if not users or not inside[list(users)].all():
        raise Unlucky
    return tuple(z), users


def solve(M: Residues, target: Residues, p: int) -> list[int]:
    """Return coprime integers x with M x = c target for some integer c != 0. M: [r, r] of zeros and ones;
    Unlucky if it is singular modulo p, or the solution is not as small as Cramer's rule says."""
    r = len(M)
    both, pivots = echelon(np.concatenate([M, np.eye(r, dtype=np.int64)], axis=1), p)
    if pivots != list(range(r)):
        raise Unlucky
    inverse = both[:, r:]
    # Hadamard: a determinant of zeros and ones is at most (r + 1)^((r + 1) / 2) / 2^r.
    bits = (r + 1) / 2 * log2(r + 1) - r + 1
    rest, modulus, values = target, 1, [0] * r
    while modulus.bit_length() <= 2 * bits + 2:
        digit = (inverse * (rest % p) % p).sum(axis=1) % p
        rest = (rest - M @ digit) // p
        values = [value + modulus * low for value, low in zip(values, digit.tolist(), strict=True)]
        modulus *= p
    denominator, numerators = 1, list[int]()
    for value in values:
        numerator, factor = rational(value * denominator % modulus, modulus)
        denominator *= factor
        numerators = [*(known * factor for known in numerators), numerator]
    return numerators


def rational(value: int, modulus: int) -> tuple[int, int]:
    """Return (a, b) with a = b value modulo the modulus, b > 0, both of about half its length (Wang 1981).

    >>> rational(pow(3, -1, 1009) * 2 % 1009, 1009)
    (2, 3)
    """
    bound = isqrt(modulus // 2)
    a, b, u, v = modulus, value, 0, 1
    while abs(b) > bound:
        quotient = a // b
        a, b, u, v = b, a - quotient * b, v, u - quotient * v
    return (b, v) if v > 0 else (-b, -v)
