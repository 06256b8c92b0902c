"""The least often seen take part, ties at random."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from simfl.selection.history import Participation
from simfl.selection.weighted_random import weighted_random


def past(counts: list[int]) -> Participation:
    history = Participation(len(counts))
    for index in range(max(counts)):
        history.append([user for user, count in enumerate(counts) if count > index])
    return history


@given(
    counts=st.lists(st.integers(0, 4), min_size=6, max_size=12),
    away=st.sets(st.integers(0, 5), max_size=4),
    k=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_nobody_left_out_was_seen_less_often(counts: list[int], away: set[int], k: int, seed: int) -> None:
    available = [user for user in range(len(counts)) if user not in away]
    chosen = weighted_random(available, past(counts), k, np.random.default_rng(seed))
    if len(available) < k:
        assert chosen is None
        return
    assert chosen is not None
    assert len(set(chosen)) == k
    left = set(available) - set(chosen)
    assert max(counts[user] for user in chosen) <= min((counts[user] for user in left), default=9)


def test_ties_are_drawn_uniformly() -> None:
    history, rng = past([0, 1, 1, 1, 1, 2]), np.random.default_rng(5)
    seen: dict[tuple[int, ...], int] = {}
    rounds = 6000
    for _ in range(rounds):
        chosen = weighted_random(range(6), history, 3, rng)
        assert chosen is not None
        assert chosen[0] == 0
        seen[tuple(chosen[1:])] = seen.get(tuple(chosen[1:]), 0) + 1
    assert sorted(seen) == [(a, b) for a in range(1, 5) for b in range(a + 1, 5)]
    # A right implementation fails here with probability 1e-6.
    statistic = sum((count - rounds / 6) ** 2 / (rounds / 6) for count in seen.values())
    assert statistic < chi2.isf(1e-6, df=5)


def test_everyone_takes_part_equally_often_when_nobody_is_away() -> None:
    history, rng = Participation(12), np.random.default_rng(0)
    for _ in range(9):
        history.append(weighted_random(range(12), history, 4, rng) or [])
    assert history.counts.tolist() == [3] * 12
