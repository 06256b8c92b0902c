"""The search by size: what it costs, and that bad luck is seen."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simfl.runs.multi_round_privacy.circuits import Budget, Circuits, project
from simfl.runs.multi_round_privacy.modular import PRIMES, Unlucky, rank
from tests.sizes import examples

p = PRIMES[0]


def vectors(seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Small entries, so that there are circuits of all sizes; rank m, as asked for."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 6))
    X = np.concatenate([rng.integers(-1, 2, (int(rng.integers(1, 7)), m)), np.eye(m, dtype=int)])
    return rng.permutation(X) % p, rng.integers(1, rng.choice([2, 4, 12]), len(X))


def lightest(X: NDArray[np.int64], weights: NDArray[np.int64], most: int) -> int:
    """The lightest dependent set of at most so many vectors, or one more than all of them."""
    sets = (S for size in range(1, most + 1) for S in combinations(range(len(X)), size))
    found = [weights[list(S)].sum() for S in sets if rank(X[list(S)], p) < len(S)]
    return int(min(found, default=weights.sum() + 1))


@given(st.integers(0, 10**9))
@settings(deadline=None, max_examples=examples(25))
def test_the_lightest_circuit(seed: int) -> None:
    X, weights = vectors(seed)
    search = Circuits(X, weights, p, np.random.default_rng(seed))
    search.search(Budget(1e9))
    assert search.lower == search.weight == lightest(X, weights, len(X))
    if search.best:
        assert weights[list(search.best)].sum() == search.weight
        assert rank(X[list(search.best)], p) < len(search.best)


@given(st.integers(0, 10**9), st.integers(0, 2500))
@settings(deadline=None, max_examples=examples(25))
def test_a_budget_leaves_a_true_bound(seed: int, work: int) -> None:
    X, weights = vectors(seed)
    search, budget = Circuits(X, weights, p, np.random.default_rng(seed)), Budget(work)
    search.search(budget)
    assert budget.left >= 0
    assert search.lower <= lightest(X, weights, len(X)) <= search.weight


@given(st.integers(0, 10**9))
@settings(deadline=None, max_examples=examples(25))
def test_luck_only_costs_time(seed: int) -> None:
    """Modulo a small prime random maps send independent sets to dependent ones: right, or seen."""
    rng = np.random.default_rng(seed)
    m, q = int(rng.integers(3, 6)), int(rng.choice([5, 101, 499]))
    X = rng.permutation(np.concatenate([rng.integers(0, q, (4, m)), np.eye(m, dtype=int)]))
    weights = rng.integers(1, 4, len(X))
    search = Circuits(X, weights, q, rng)
    try:
        search.search(Budget(1e9))
    except Unlucky:
        return
    sets = (S for size in range(1, m + 2) for S in combinations(range(len(X)), size))
    assert search.weight == min(weights[list(S)].sum() for S in sets if rank(X[list(S)], q) < len(S))


def test_projection() -> None:
    rng = np.random.default_rng(0)
    X, map_ = rng.integers(0, p, (5, 7)), rng.integers(0, p, (7, 3))
    wanted = X.astype(object) @ map_.astype(object) % p
    assert (project(X, map_, p) == wanted.astype(np.int64)).all()


@pytest.mark.parametrize(("asked", "granted", "left"), [(5, True, 0), (6, False, 5), (0, True, 5)])
def test_budget(asked: int, granted: bool, left: int) -> None:
    budget = Budget(5)
    assert budget.take(asked) is granted
    assert budget.left == left
