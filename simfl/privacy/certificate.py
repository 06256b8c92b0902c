"""Integer combinations of rounds, and the users that they leave: upper bounds that are beyond doubt.

A combination z proves that P^T z is non-zero on certain users only. It is found by p-adic lifting (Dixon
1982, "Exact solution of linear equations using p-adic expansions") of one solution modulo a prime, and
checked in Python's integers, so nothing of how it was found needs to be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, log2

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.modular import Residues, echelon


class Unlucky(ArithmeticError):
    """Something holds modulo this prime that does not hold over the rationals: take another prime."""


def support(rows: Sequence[NDArray[np.int64]], z: Sequence[int]) -> tuple[int, ...]:
    """The users i with (P^T z)_i != 0, ascending, in exact integers. rows: each round's users; z: [t]."""
    total: dict[int, int] = {}
    for members, weight in zip(rows, z, strict=True):
        if weight:
            for user in members.tolist():
                total[user] = total.get(user, 0) + weight
    return tuple(sorted(user for user, value in total.items() if value))


def combination(
    rows: Sequence[NDArray[np.int64]],
    R: Residues,
    sources: Sequence[int],
    inside: NDArray[np.bool_],
    p: int,
) -> tuple[int, ...]:
    """z, [t] coprime integers, such that P^T z is not zero and zero outside of `inside`, [users].

    rows: each round's users. R: an echelon form modulo p of their row space, [r, users]. sources: r of the
    rounds that span it. Raises Unlucky if there is no such z (though there is one modulo p).
    """
    order = np.concatenate([np.flatnonzero(~inside), np.flatnonzero(inside)])
    pivots = echelon(R, p, order)[1]
    if not inside[pivots[-1]]:
        raise Unlucky
    where = np.full(inside.size, -1)
    where[pivots] = np.arange(len(pivots))
    M = np.zeros((len(pivots), len(sources)), np.int64)
    for column, source in enumerate(sources):
        known = where[rows[source]]
        M[known[known >= 0], column] = 1
    # The last pivot lies inside; where all the others are zero, so is everything outside.
    target = np.zeros(len(pivots), np.int64)
    target[-1] = 1
    z = [0] * len(rows)
    for source, value in zip(sources, solve(M, target, p), strict=True):
        z[source] = value
    found = support(rows, z)
    if not found or not inside[list(found)].all():
        raise Unlucky
    return tuple(z)


def solve(M: Residues, target: Residues, p: int) -> list[int]:
    """Coprime integers x with M x = c target for some integer c != 0. M: [r, r] of zeros and ones.

    Raises Unlucky if M is singular modulo p, or the solution is not as small as Cramer's rule says.
    """
    r = len(M)
    both, pivots = echelon(np.concatenate([M, np.eye(r, dtype=np.int64)], axis=1), p)
    if pivots != list(range(r)):
        raise Unlucky
    inverse = both[:, r:]
    # Hadamard: a determinant of zeros and ones is at most (r + 1)^((r + 1) / 2) / 2^r.
    bits = (r + 1) / 2 * log2(r + 1) - r + 1
    digits, rest, modulus = [], target, 1
    while modulus.bit_length() <= 2 * bits + 2:
        digit = (inverse * (rest % p) % p).sum(axis=1) % p
        rest = (rest - M @ digit) // p
        digits.append(digit.tolist())
        modulus *= p
    values = [0] * r
    for digit in reversed(digits):
        values = [value * p + low for value, low in zip(values, digit, strict=True)]
    denominator, numerators = 1, list[int]()
    for value in values:
        value = value * denominator % modulus
        numerator, factor = rational(value, modulus)
        denominator *= factor
        numerators = [known * factor for known in numerators]
        numerators.append(numerator)
    return numerators


def rational(value: int, modulus: int) -> tuple[int, int]:
    """(a, b) with a = b value modulo the modulus, b > 0 and both of about half its length (Wang 1981)."""
    bound = isqrt(modulus // 2)
    a, b, u, v = modulus, value, 0, 1
    while abs(b) > bound:
        quotient = a // b
        a, b, u, v = b, a - quotient * b, v, u - quotient * v
    return (b, v) if v > 0 else (-b, -v)
