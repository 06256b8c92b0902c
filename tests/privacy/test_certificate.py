"""Exact combinations of rounds."""

from __future__ import annotations

from fractions import Fraction
from math import gcd

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.runs.multi_round_privacy.modular import PRIMES, Unlucky, combination, rational, solve, support

p = PRIMES[0]


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(0, 10**6))
def test_solutions_hold_in_integers(r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    M, target = rng.integers(0, 2, (r, r)), rng.integers(0, 2, r)
    try:
        x = solve(M, target, p)
    except Unlucky:
        assert np.linalg.matrix_rank(M) < r
        return
    image = M.astype(object) @ np.array(x, object)
    factor = next((value for value, wanted in zip(image, target, strict=True) if wanted), 0)
    assert image.tolist() == [factor * wanted for wanted in target.tolist()]
    assert gcd(*x) == 1 or not target.any()


@given(st.integers(-(10**8), 10**8), st.integers(1, 10**8))
def test_fractions_come_back(numerator: int, denominator: int) -> None:
    wanted = Fraction(numerator, denominator)
    modulus = p * p
    value = numerator * pow(denominator, -1, modulus) % modulus
    assert Fraction(*rational(value, modulus)) == wanted


def test_support_counts_in_integers_of_any_size() -> None:
    rows = [np.array([0, 1]), np.array([1, 2]), np.array([0, 2])]
    assert support(rows, (1, -1, 1)) == (0,)
    assert support(rows, (10**40, -(10**40), -(10**40) + 1)) == (0, 2)
    assert support(rows, (0, 0, 0)) == ()


def test_a_support_that_is_none_is_refused() -> None:
    rows = [np.array([0, 1]), np.array([1, 2])]
    z, users = combination(rows, np.array([True, False, True]), p)
    assert users == support(rows, z) == (0, 2)
    assert gcd(*z) == 1
    for wrong in ([True, False, False], [False, True, False]):
        with pytest.raises(Unlucky):
            combination(rows, np.array(wrong), p)


def test_what_only_holds_modulo_the_prime_is_refused() -> None:
    """Modulo 2 the sum of the three rounds is user 3 alone; over the rationals no combination is."""
    rows = [np.array([0, 1]), np.array([1, 2]), np.array([0, 2, 3])]
    with pytest.raises(Unlucky):
        combination(rows, np.array([False, False, False, True]), 2)
