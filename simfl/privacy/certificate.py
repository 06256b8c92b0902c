"""Integer combinations of rounds, and the users that they leave: upper bounds that are beyond doubt.

A combination z proves that P^T z is non-zero on certain users only. It is found by p-adic lifting (Dixon
1982, "Exact solution of linear equations using p-adic expansions") of one solution modulo a prime, and
checked in Python's integers, so nothing of how it was found needs to be trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isqrt, log2

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.modular import Residues, RowSpace, echelon


class Unlucky(ArithmeticError):
    """Something holds modulo this prime that does not hold over the rationals: take another prime."""


def support(rows: Sequence[NDArray[np.int64]], z: Sequence[int]) -> tuple[int, ...]:
    """Return the users i with (P^T z)_i != 0, ascending, in exact integers. rows: each round's users; z: [t].

    >>> support([np.array([0, 1]), np.array([1, 2])], [1, -1])
    (0, 2)
    """
    total = Counter[int]()
    for members, weight in zip(rows, z, strict=True):
        for user in members.tolist():
            total[user] += weight
    return tuple(sorted(user for user, value in total.items() if value))


def combination(
    rows: Sequence[NDArray[np.int64]], inside: NDArray[np.bool_], p: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return (z, users): z, [t] coprime integers, is such that P^T z is non-zero exactly on `users`.

    rows: each round's users, linearly independent modulo p. users: one or more, all of them inside, [users].
    Raises Unlucky if there is no such z (though there is one modulo p).
    """
    space = RowSpace(inside.size, p)
    for members in rows:
        space.append(members)
    order = np.concatenate([np.flatnonzero(~inside), np.flatnonzero(inside)])
    pivots = echelon(space.rows, p, order)[1]
    if not inside[pivots[-1]]:
        raise Unlucky
    M = np.zeros((len(rows), inside.size), np.int64)
    for t, members in enumerate(rows):
        M[t, members] = 1
    # The last pivot lies inside; where all the others are zero, so is everything outside.
    target = np.zeros(len(pivots), np.int64)
    target[-1] = 1
    z = solve(M[:, pivots].T, target, p)
    users = support(rows, z)
    if not users or not inside[list(users)].all():
        raise Unlucky
    return tuple(z), users


def solve(M: Residues, target: Residues, p: int) -> list[int]:
    """Return coprime integers x with M x = c target for some integer c != 0. M: [r, r] of zeros and ones.

    Raises Unlucky if M is singular modulo p, or the solution is not as small as Cramer's rule says.
    """
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
