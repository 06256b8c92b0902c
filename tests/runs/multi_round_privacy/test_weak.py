"""The weak notion against all supports, and the papers' claims about selection schemes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from simfl.runs.multi_round_privacy import modular
from simfl.runs.multi_round_privacy.metrics import Matrix, sparse, strong_over_time
from simfl.runs.multi_round_privacy.modular import PRIMES, RowSpace
from simfl.runs.multi_round_privacy.weak import Interval, light_vectors, weak_over_time
from simfl.world.participation import Participation
from simfl.world.selection import MultiRound, Random, Selection
from tests.privacy import oracle
from tests.sizes import examples

Array = NDArray[Any]
MATRICES = arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 8)), elements=st.integers(0, 1))
DENSE = st.builds(
    lambda seed, N, t: (np.random.default_rng(seed).random((t, N)) < 0.7).astype(int),
    st.integers(0, 10**9), st.integers(7, 9), st.integers(3, 7),
)  # fmt: skip
"""Rounds that share most of their users: differences are light, and hypothesis seldom thinks of them."""
BEYOND_ROWS = np.array(
    [
        [0, 1, 0, 0, 1, 1, 0, 1, 0],
        [0, 0, 0, 1, 0, 1, 0, 1, 1],
        [0, 0, 1, 0, 1, 0, 1, 0, 1],
        [1, 1, 0, 1, 0, 0, 0, 0, 1],
        [1, 0, 0, 1, 1, 0, 1, 0, 0],
    ]
)
"""Rows of four users; T = 3, and neither a row, nor a difference, nor the reduced echelon form shows it."""


def weak(P: Matrix) -> Interval | None:
    """The weak T of all rounds together."""
    return weak_over_time(P)[-1]


def seen_at_last(P: Array) -> Array:
    """The lightest support that is seen without a search."""
    *_, (_, inside) = light_vectors(sparse(P), RowSpace(P.shape[1], PRIMES[0]))
    return inside


def run(scheme: Selection, N: int, J: int, seed: int, p: float = 0.0) -> Participation:
    history, rng = Participation(N), np.random.default_rng(seed)
    for _ in range(J):
        history.append(scheme.chosen(np.flatnonzero(rng.random(N) >= p), history, rng) or [])
    return history


@given(st.integers(0, 10**9))
@settings(deadline=None, max_examples=examples(30))
def test_unequal_classes_and_larger_circuits_exactly(seed: int) -> None:
    """Dense columns of which some are doubled: circuits of up to six columns and more."""
    rng = np.random.default_rng(seed)
    N = int(rng.integers(8, 13))
    P = (rng.random((int(rng.integers(3, N)), N)) < rng.choice([0.3, 0.5, 0.6])).astype(int)
    if seed % 2:
        P = np.repeat(P, rng.integers(1, 4, N), axis=1)[:, :13]
    assert weak(P) == (oracle.weak_in_floats(P),) * 2


@given(MATRICES)
@settings(deadline=None)
def test_over_time_it_is_the_truth_of_every_round(P: Array) -> None:
    truth = [oracle.weak(P[: t + 1]) for t in range(len(P))]
    assert weak_over_time(P) == [None if T is None else (T, T) for T in truth]


@given(MATRICES | DENSE, st.sampled_from([0, 20, 200]))
@settings(deadline=None, max_examples=examples(30))
def test_with_little_work_it_is_an_interval(P: Array, budget: int) -> None:
    before = P.shape[1], P.shape[1]
    for t, (bounds, strong) in enumerate(zip(weak_over_time(P, budget), strong_over_time(P), strict=True)):
        T = oracle.weak(P[: t + 1])
        if t and oracle.rank(P[: t + 1]) == oracle.rank(P[:t]):
            assert bounds == before or bounds is None
        assert (bounds is None) == (T is None)
        if bounds is not None and T is not None:
            assert (strong or 0) <= bounds[0] <= T <= bounds[1]
            assert (bounds == (1, 1)) == (T == 1)
            assert bounds[0] >= min(T, 2)
            assert bounds[0] <= before[0]
            assert bounds[1] <= before[1]
            before = bounds


@given(DENSE)
@settings(deadline=None)
def test_supports_without_a_search(P: Array) -> None:
    """The lightest of the rounds, their differences and the rows of every round's reduced form."""
    seen = P.shape[1]
    for t, row in enumerate(P):
        weights = [
            row.sum(),
            *(row != P[:t]).sum(axis=1),
            oracle.least_row(P[: t + 1]),
        ]
        seen = min([seen, *(w for w in weights if w)])
    assert seen_at_last(P).sum() == seen


@pytest.mark.parametrize("again", [0, 2])
def test_differences_of_rounds_are_seen(again: int) -> None:
    P = np.array([[1, 1, 1, 0, 0, 1], [1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 1, 0]])
    assert oracle.least_row(P) == 3
    assert np.flatnonzero(seen_at_last(P[[0, 1, again, 2]])).tolist() == [2, 3]


def test_the_papers_three_rounds() -> None:
    """Section 3.2: x_1 = (x^(1) + x^(3) - x^(2)) / 2 after three rounds."""
    P = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
    assert weak_over_time(P) == [(2, 2), (2, 2), (1, 1)]


def test_the_rows_of_the_echelon_form_alone_overstate_it() -> None:
    P = np.array([[0, 1, 1, 1], [1, 0, 1, 1]])
    assert oracle.least_row(P) == 3
    assert oracle.weak(P) == 2
    assert weak(P) == (2, 2)
    assert np.flatnonzero(seen_at_last(P)).tolist() == [0, 1]


def test_a_support_that_only_the_search_finds() -> None:
    assert seen_at_last(BEYOND_ROWS).sum() == oracle.least_row(BEYOND_ROWS) == 4
    assert oracle.weak(BEYOND_ROWS) == 3
    assert weak(BEYOND_ROWS) == (3, 3)


@pytest.mark.parametrize("seed", range(3))
def test_random_selection_falls_to_one_within_n_to_2_n_rounds(seed: int) -> None:
    N = 20
    P = run(Random(users=4), N, 3 * N, seed).matrix()
    over_time = weak_over_time(P)
    first = over_time.index((1, 1)) + 1
    assert N / 2 < first <= 2 * N
    assert set(over_time[first - 1 :]) == {(1, 1)}


@pytest.mark.parametrize("T", [2, 4])
def test_multi_round_keeps_its_promise_in_both_notions(T: int) -> None:
    P = run(MultiRound(users=4, T=T, fair=False), 20, 60, T, p=0.1).matrix()
    over_time = weak_over_time(P)
    assert over_time[-1] == (T, T)
    assert strong_over_time(P)[-1] == T
    assert all(bounds is None or bounds[0] >= T for bounds in over_time)


@pytest.mark.ci
@pytest.mark.parametrize(("N", "K", "J"), [(60, 6, 90), pytest.param(120, 12, 160, marks=pytest.mark.slow)])
def test_many_users_and_rounds(N: int, K: int, J: int) -> None:
    """Up to the paper's size: intervals on the way, the truth at both ends, and every claim consistent."""
    P = run(Random(users=K), N, J, 1, p=0.3).matrix()
    over_time = [bounds for bounds in weak_over_time(P) if bounds is not None]
    assert len(over_time) == J
    assert over_time[4] == (K, K)
    lowers, uppers = zip(*over_time, strict=True)
    assert sorted(lowers, reverse=True) == list(lowers)
    assert sorted(uppers, reverse=True) == list(uppers)
    assert all(s is not None and s <= lower for s, lower in zip(strong_over_time(P), lowers, strict=True))
    first = over_time.index((1, 1)) + 1
    assert 0.9 * N < first < 1.25 * N
    # One more kernel dimension, one more user: the last values are known exactly, step by step.
    assert {(4, 4), (3, 3), (2, 2)} <= set(over_time)
    rows = P.toarray().astype(float)
    for t in (first - 1, first):
        # An independent opinion on T = 1: the projection on the row space leaves e_i where it is.
        stays = np.diag(np.linalg.pinv(rows[:t]) @ rows[:t]) > 1 - 1e-10
        assert stays.any() == (t == first)


def test_skipped_rounds_and_no_users() -> None:
    assert weak_over_time(np.zeros((2, 3), int)) == [None, None]
    assert weak_over_time(np.zeros((0, 3), int)) == []
    P = np.array([[0, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 0], [1, 0, 0]])
    assert weak_over_time(P) == [None, (2, 2), (2, 2), (2, 2), (1, 1)]


def test_an_unlucky_prime_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modulo 2 the three rounds add up to user 3 alone; over the rationals nobody can be singled out."""
    P = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1]])
    monkeypatch.setattr(modular, "PRIMES", (2, PRIMES[0]))
    assert oracle.weak(P) == 2
    assert weak(P) == (2, 2)
    assert weak_over_time(P, budget=0)[-1] == (2, 2)  # T = 1 is proved whatever the budget
    monkeypatch.setattr(modular, "PRIMES", (2,))
    with pytest.raises(ArithmeticError, match="suits this"):
        weak(P)
