"""Multi-RoundSecAgg against its family B, listed in full for few users."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from simfl.world.participation import Participation
from simfl.world.selection import MultiRound, Partition, check_batches

SIZES = [(8, 4, 2), (8, 4, 1), (9, 3, 3), (12, 6, 2), (12, 6, 3), (12, 4, 4), (6, 6, 2)]


def family(N: int, K: int, T: int) -> list[tuple[int, ...]]:
    """The supports of Algorithm 1's rows."""
    batches = [tuple(range(first, first + T)) for first in range(0, N, T)]
    return [sum(some, ()) for some in combinations(batches, K // T)]


def past(counts: NDArray[np.int64]) -> Participation:
    history = Participation(counts.size)
    for index in range(int(counts.max())):
        history.append(np.flatnonzero(counts > index))
    return history


def uniform(seen: Counter[tuple[int, ...]], rows: list[tuple[int, ...]]) -> bool:
    """Chi-square: a right implementation fails with probability 1e-6."""
    assert set(seen) <= set(rows)
    expected = seen.total() / len(rows)
    statistic = sum((seen[row] - expected) ** 2 / expected for row in rows)
    return bool(statistic <= chi2.isf(1e-6, df=max(len(rows) - 1, 1)))


@given(
    sizes=st.sampled_from(SIZES),
    away=st.sets(st.integers(0, 11), max_size=7),
    counts=st.lists(st.integers(0, 3), min_size=12, max_size=12),
    fair=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_it_takes_an_available_row_of_the_family(
    sizes: tuple[int, int, int], away: set[int], counts: list[int], fair: bool, seed: int
) -> None:
    N, K, T = sizes
    available = [user for user in range(N) if user not in away]
    history = past(np.array(counts[:N]))
    rows = [row for row in family(N, K, T) if set(row) <= set(available)]
    chosen = MultiRound(users=K, T=T, fair=fair).chosen(available, history, np.random.default_rng(seed))
    if not rows:
        assert chosen is None
        return
    assert chosen is not None
    assert tuple(chosen) in rows
    if fair:
        reachable = {user for row in rows for user in row}
        assert min(counts[user] for user in chosen) == min(counts[user] for user in reachable)


@pytest.mark.parametrize(("N", "K", "T"), SIZES)
def test_every_available_row_is_equally_likely(N: int, K: int, T: int) -> None:
    rng, history = np.random.default_rng(N * K + T), Participation(N)
    available = [user for user in range(N) if user != N - 1 or (K, T) == (N, T)]
    rows = [row for row in family(N, K, T) if set(row) <= set(available)]
    seen = Counter(
        tuple(MultiRound(users=K, T=T, fair=False).chosen(available, history, rng) or ())
        for _ in range(40 * len(rows))
    )
    assert uniform(seen, rows)


@pytest.mark.ci
def test_fair_rows_with_the_least_user_are_equally_likely() -> None:
    history, rng = past(np.array([1, 1, 2, 2, 0, 1, 3, 3, 2, 2, 0, 0])), np.random.default_rng(11)
    # Users 10 and 11 took part least, but 11 is away; of whom a row can hold, user 4 did.
    rows = [row for row in family(12, 6, 2) if 4 in row and 10 not in row]
    assert len(rows) == 6
    seen = Counter(
        tuple(MultiRound(users=6, T=2, fair=True).chosen(range(11), history, rng) or ()) for _ in range(3000)
    )
    assert uniform(seen, rows)


def test_with_fairness_ties_are_drawn_uniformly() -> None:
    history, rng = past(np.array([1, 1, 0, 0, 0, 0, 1, 1])), np.random.default_rng(12)
    seen = Counter(
        tuple(MultiRound(users=2, T=2, fair=True).chosen(range(8), history, rng) or ()) for _ in range(2000)
    )
    assert uniform(seen, [(2, 3), (4, 5)])


@pytest.mark.ci
def test_fairness_narrows_the_gap_of_unequal_users() -> None:
    """Algorithm 2's purpose: p_i of 0.1 to 0.5 at random, as in section 6.

    Only one of the K / T batches is a least one, so the gap narrows and does not vanish.
    """
    p, gaps = np.random.default_rng(1).choice([0.1, 0.2, 0.3, 0.4, 0.5], 120), {}
    for fair in (False, True):
        history, rng = Participation(120), np.random.default_rng(2)
        for _ in range(1000):
            available = np.flatnonzero(rng.random(120) >= p)
            history.append(MultiRound(users=12, T=3, fair=fair).chosen(available, history, rng) or [])
        gaps[fair] = (history.counts.max() - history.counts.min()) / len(history)
    assert 0 < gaps[True] < 0.7 * gaps[False]


@given(
    away=st.sets(st.integers(0, 11), max_size=6),
    counts=st.lists(st.integers(0, 3), min_size=12, max_size=12),
    seed=st.integers(0, 2**32),
)
def test_partition_takes_a_whole_group_with_a_least_user(
    away: set[int], counts: list[int], seed: int
) -> None:
    groups = [group for group in family(12, 3, 3) if not set(group) & away]
    available = [user for user in range(12) if user not in away]
    chosen = Partition(users=3).chosen(available, past(np.array(counts)), np.random.default_rng(seed))
    if not groups:
        assert chosen is None
        return
    assert chosen is not None
    assert tuple(chosen) in groups
    least = min(counts[user] for group in groups for user in group)
    assert least in [counts[user] for user in chosen]


def test_partition_draws_ties_uniformly() -> None:
    rng = np.random.default_rng(4)
    seen = Counter(
        tuple(Partition(users=3).chosen(range(1, 12), Participation(12), rng) or ()) for _ in range(2000)
    )
    assert uniform(seen, family(12, 3, 3)[1:])


@pytest.mark.parametrize(
    ("users", "K", "T", "why"),
    [
        (120, 12, 5, "T=5 does not divide K=12: use 4 or 6"),
        (100, 12, 3, "users=100 is no multiple of T=3: use 99 or 102"),
        (100, 12, 12, "users=100 is no multiple of T=K=12: use 96 or 108"),
        (100, 12, 5, "T=5 does not divide K=12: use 4"),  # 6 does not divide 100
        (120, 12, 24, "T=24 does not divide K=12: use 12"),
        (10, 9, 9, "users=10 is no multiple of T=K=9: use 9 or 18"),
        (10, 8, 4, "users=10 is no multiple of T=4: use 8 or 12"),
        (10, 9, 3, "users=10 is no multiple of T=3: use 9 or 12"),
        (10, 11, 1, "K=11 must be at least 1 and at most users=10"),
        (10, 0, 1, "K=0 must be at least 1"),
        (10, 2, 0, "T=0 must be at least 1"),
    ],
)
def test_sizes_that_do_not_divide_are_refused_with_a_remedy(users: int, K: int, T: int, why: str) -> None:
    with pytest.raises(ValueError, match=why + "($|[^0-9]*$| and)"):
        check_batches(users, K, T)
    if K and T:
        ((key, told),) = MultiRound(users=K, T=T).problems(users)
        assert (key, told) == ("users", "users=11 must not be above population.users=10") or why in told


@given(users=st.integers(1, 60), K=st.integers(1, 60), T=st.integers(1, 60))
def test_the_values_it_names_work(users: int, K: int, T: int) -> None:
    fits = 1 <= K <= users and K % T == 0 and users % T == 0
    try:
        check_batches(users, K, T)
    except ValueError as error:
        assert not fits
        if "use" not in str(error).split():
            assert users < K
            return
        for value in map(int, str(error).split("use ")[-1].split(" or ")):
            if "divide" in str(error):
                check_batches(users, K, value)
            else:
                check_batches(value, K, T)
    else:
        assert fits


@pytest.mark.parametrize("fair", [False, True])
def test_many_users(fair: bool) -> None:
    N, K, T = 99_999, 999, 3
    chosen = MultiRound(users=K, T=T, fair=fair).chosen(
        np.arange(5, N), Participation(N), np.random.default_rng(0)
    )
    assert chosen is not None
    assert len(set(chosen)) == K
    assert min(chosen) >= 6
    assert all(user % T or user + 1 in chosen for user in chosen[:30])
