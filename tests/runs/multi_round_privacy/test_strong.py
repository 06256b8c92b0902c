"""The strong notion against its definition: groups of equal non-zero values of P^T z."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from simfl.runs.multi_round_privacy.metrics import Classes, strong_over_time
from simfl.world.participation import Participation
from simfl.world.selection import MultiRound

MATRICES = arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=st.integers(0, 1))


def by_definition(P: NDArray[np.int64]) -> int | None:
    """The least group of equal non-zero values over many z, a generic one (powers of 7) among them."""
    least: int | None = None
    for z in [*product((-1, 0, 1, 2), repeat=len(P)), tuple(7**t for t in range(len(P)))]:
        values = Counter(value for value in (np.array(z) @ P).tolist() if value)
        least = min([*values.values(), *([least] if least else [])], default=None)
    return least


@given(MATRICES)
def test_strong_is_the_definition_at_every_round(P: NDArray[np.int64]) -> None:
    assert strong_over_time(P) == [by_definition(P[: t + 1]) for t in range(len(P))]


@given(MATRICES)
def test_labels_are_the_classes_of_identical_columns(P: NDArray[np.int64]) -> None:
    classes = Classes(P.shape[1])
    for row in P:
        classes.append(np.flatnonzero(row))
    for i, j in product(range(P.shape[1]), repeat=2):
        assert (classes.labels[i] == classes.labels[j]) == (P[:, i] == P[:, j]).all()
    assert ((classes.labels == 0) == ~P.any(axis=0)).all()


def test_before_any_user_took_part() -> None:
    history = Participation(4)
    assert strong_over_time(history.matrix()) == []
    for members in ([], [1, 2, 3], [2]):
        history.append(members)
    assert strong_over_time(history.matrix()) == [None, 3, 1]


@pytest.mark.parametrize("T", [2, 3, 6])
def test_multi_round_keeps_its_promise(T: int) -> None:
    history, rng = Participation(24), np.random.default_rng(T)
    for _ in range(80):
        available = np.flatnonzero(rng.random(24) >= 0.1)
        history.append(MultiRound(users=6, T=T).chosen(available, history, rng) or [])
    assert strong_over_time(history.matrix())[-1] == T
