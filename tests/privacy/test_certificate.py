"""Supports that are proved in integers, against fractions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from simfl.runs.multi_round_privacy.modular import Unlucky, proved_support
from tests.privacy import oracle

MATRICES = arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 7)), elements=st.integers(0, 1))


def rounds(P: NDArray[Any]) -> list[NDArray[Any]]:
    return [np.flatnonzero(row) for row in P]


@given(MATRICES, st.integers(0, 2**7 - 1))
def test_proved_support_is_the_last_of_fractions(P: NDArray[np.int64], chosen: int) -> None:
    """Users outside come first, so the last row of the echelon form is inside if any combination is."""
    basis = [row for t, row in enumerate(P) if oracle.rank(P[: t + 1]) > (oracle.rank(P[:t]) if t else 0)]
    inside = np.array([bool(chosen >> user & 1) for user in range(P.shape[1])])
    if not basis:
        return
    order = (*np.flatnonzero(~inside).tolist(), *np.flatnonzero(inside).tolist())
    last = oracle.reduced(np.array(basis), order)[-1]
    expected = tuple(user for user, value in enumerate(last) if value)
    if inside[list(expected)].all():
        assert proved_support(rounds(np.array(basis)), inside) == expected
    else:
        with pytest.raises(Unlucky):
            proved_support(rounds(np.array(basis)), inside)


def test_support_by_large_numbers_is_proved() -> None:
    """User 0 alone, of 40 users and 40 random rounds: determinants of some 60 bits."""
    P = (np.random.default_rng(4).random((40, 40)) < 0.5).astype(int)
    assert np.linalg.matrix_rank(P) == 40
    inside = np.arange(40) == 0
    assert proved_support(rounds(P), inside) == (0,)
    with pytest.raises(Unlucky):
        proved_support(rounds(P)[:-1], inside)
