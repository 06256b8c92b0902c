"""Elimination modulo a prime against the rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from simfl.runs.multi_round_privacy.modular import PRIMES, RowSpace, echelon, inverses, rank
from tests.privacy import oracle

MATRICES = arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 7)), elements=st.integers(0, 1))


def residues(rows: list[list[Fraction]], p: int) -> list[list[int]]:
    return [[x.numerator * pow(x.denominator, -1, p) % p for x in row] for row in rows]


def test_the_primes_are_the_largest_below_2_to_31() -> None:
    candidates = range(2**31 - 1, PRIMES[-1] - 1, -1)
    assert tuple(n for n in candidates if all(n % divisor for divisor in range(2, 46_342))) == PRIMES


@given(MATRICES, st.sampled_from(PRIMES))
def test_echelon_is_the_rational_one(P: NDArray[np.int64], p: int) -> None:
    order = np.random.default_rng(P.sum()).permutation(P.shape[1])
    for columns in (None, order):
        R, pivots, _ = echelon(P, p, columns)
        assert R.tolist() == residues(oracle.reduced(P, None if columns is None else tuple(columns)), p)
        assert (R[:, pivots] == np.eye(len(pivots))).all()
    assert rank(P, p) == oracle.rank(P)


@given(MATRICES, st.sampled_from(PRIMES))
def test_row_by_row_it_is_the_same_space(P: NDArray[np.int64], p: int) -> None:
    space = RowSpace(P.shape[1], p)
    for t, row in enumerate(P):
        grew = space.append(np.flatnonzero(row))
        assert grew == (oracle.rank(P[: t + 1]) > (oracle.rank(P[:t]) if t else 0))
        assert (space.rows[:, space.pivots] == np.eye(len(space.pivots))).all()
        assert echelon(space.rows, p).rows.tolist() == echelon(P[: t + 1], p).rows.tolist()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 101])
def test_inverses(n: int) -> None:
    for p in (*PRIMES, 2, 3):
        a = np.random.default_rng(n).integers(1, p, n)
        assert (a * inverses(a, p) % p == 1).all()
