"""Least squares on many rounds' sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from simfl.privacy.attack import Isolated, errors, isolated, rank, reconstruct
from simfl.privacy.weak import weak
from simfl.selection.history import Participation
from simfl.selection.schemes import MultiRound, Random, Selection
from tests.privacy import oracle

Array = NDArray[Any]
MATRICES = arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 7)), elements=st.integers(0, 1))


def run(scheme: Selection, N: int, J: int, seed: int) -> Array:
    history, rng = Participation(N), np.random.default_rng(seed)
    for _ in range(J):
        history.append(scheme.chosen(range(N), history, rng) or [])
    matrix: Array = history.matrix().toarray().astype(int)
    return matrix


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_constant_updates_are_recovered_where_p_has_full_column_rank(dtype: Any) -> None:
    P = run(Random(users=8), 40, 60, 3)
    assert rank(P) == 40
    truth = np.random.default_rng(1).standard_normal((40, 1000)).astype(dtype)
    estimates = reconstruct(P, P.astype(dtype) @ truth)
    assert estimates.dtype == dtype
    e = errors(truth, estimates)
    assert e.max() < (1e-20 if dtype is np.float64 else 1e-8)
    assert isolated(P) == Isolated(tuple(range(40)), ())


def test_batches_are_split_evenly() -> None:
    """T = 2: both are taken for half their sum, so e_i = ||d_i - d_j||^2 / (4 ||d_i||^2)."""
    P = run(MultiRound(users=4, T=2), 20, 60, 5)
    assert rank(P) == 10
    truth = np.random.default_rng(2).standard_normal((20, 300))
    estimates = reconstruct(P, P @ truth)
    pairs = truth.reshape(10, 2, 300)
    np.testing.assert_allclose(estimates.reshape(10, 2, 300).sum(axis=1), pairs.sum(axis=1), atol=1e-9)
    apart = ((pairs[:, 0] - pairs[:, 1]) ** 2).sum(axis=1)
    np.testing.assert_allclose(
        errors(truth, estimates).reshape(10, 2), apart[:, None] / (4 * (pairs**2).sum(axis=2)), rtol=1e-9
    )
    assert isolated(P) == Isolated((), tuple((i, i + 1) for i in range(0, 20, 2)))


def test_noise_is_averaged() -> None:
    """Equation 33's Z: more rounds, smaller errors."""
    rng = np.random.default_rng(8)
    truth, P = rng.standard_normal((20, 400)), run(Random(users=4), 20, 600, 1)
    totals = P @ truth + 0.05 * rng.standard_normal((600, 400))
    few, many = (errors(truth, reconstruct(P[:r], totals[:r])).mean() for r in (40, 600))
    assert many < few / 5
    assert many < 1e-3


@given(MATRICES)
@settings(deadline=None)
def test_it_is_the_least_norm_solution(P: Array) -> None:
    totals = np.random.default_rng(P.size).standard_normal((len(P), 3))
    wanted = np.linalg.lstsq(P.astype(float), totals, rcond=None)[0]
    found = reconstruct(P, totals)
    took_part = P.any(axis=0)
    np.testing.assert_allclose(found[took_part], wanted[took_part], atol=1e-8)
    assert np.isnan(found[~took_part]).all()


@given(MATRICES)
@settings(deadline=None)
def test_who_is_isolated_by_the_rank_that_the_row_space_loses(P: Array) -> None:
    full = oracle.rank(P)
    assert rank(P) == full
    classes: dict[tuple[int, ...], list[int]] = {}
    for user in np.flatnonzero(P.any(axis=0)).tolist():
        classes.setdefault(tuple(P[:, user].tolist()), []).append(user)
    alone = [tuple(c) for c in classes.values() if oracle.rank(np.delete(P, c, axis=1)) < full]
    users = [c[0] for c in alone if len(c) == 1]
    assert isolated(P) == Isolated(tuple(users), tuple(c for c in alone if len(c) > 1))
    found = weak(P)
    assert bool(users) == (found is not None and found.upper == 1)


def test_who_never_took_part_and_who_sent_nothing() -> None:
    P = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 1]])
    truth = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [0.0, 0.0]])
    e = errors(truth, reconstruct(P, P @ truth))
    assert e[:2] == pytest.approx([0, 0], abs=1e-20)
    assert np.isnan(e[2])
    zero, near = np.zeros((2, 2)), np.array([[0.0, 0.0], [0.0, 1e-9]])
    assert errors(zero, near).tolist() == [0, np.inf]
    assert np.isnan(errors(zero, np.full((2, 2), np.nan))).all()


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match=r"totals must be \[2 rounds, d\], not of shape \(3, 4\)"):
        reconstruct(np.eye(2, dtype=int), np.zeros((3, 4)))
    with pytest.raises(ValueError, match="the estimates are"):
        errors(np.zeros((2, 3)), np.zeros((2, 4)))


def test_large_updates() -> None:
    P = run(Random(users=3), 10, 25, 0)
    truth = np.random.default_rng(0).standard_normal((10, 200_000)).astype(np.float32)
    assert errors(truth, reconstruct(P, P.astype(np.float32) @ truth)).max() < 1e-8
