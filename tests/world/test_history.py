"""The participation matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.world.participation import Participation


@given(st.lists(st.sets(st.integers(0, 6)), max_size=8))
def test_rows_counts_and_matrix_agree_with_plain_lists(rounds: list[set[int]]) -> None:
    history = Participation(7)
    counts = history.counts
    for members in rounds:
        history.append(members)
    plain = np.array([[int(user in members) for user in range(7)] for members in rounds]).reshape(-1, 7)
    assert len(history) == len(rounds)
    assert counts.tolist() == plain.sum(axis=0).tolist()
    matrix = history.matrix()
    assert (matrix.shape, matrix.dtype) == (plain.shape, np.int8)
    assert (matrix.toarray() == plain).all()


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([0, 3], "round 1: user 3 is not one of 0..2"),
        ([-1], "user -1 is not one of"),
        ([2, 0, 2], "user 2 takes part twice"),
    ],
)
def test_unknown_and_doubled_users_are_refused(members: list[int], why: str) -> None:
    history = Participation(3)
    history.append([2, 1])
    with pytest.raises(ValueError, match=why):
        history.append(members)
    assert len(history) == 1
    assert history.counts.tolist() == [0, 1, 1]


def test_counts_are_read_only() -> None:
    history = Participation(3)
    history.append(iter([2, 1]))
    with pytest.raises(ValueError, match="read-only"):
        history.counts[0] = 5


def test_there_are_users() -> None:
    with pytest.raises(ValueError, match="users=0"):
        Participation(0)
