"""T = a + s S + b E n, fitted: known laws come back, errors are relative."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.learning.sgd import SIZES, fit

BATCH = 10
CLIENTS = [(math.ceil(k), math.ceil(k * BATCH)) for k in SIZES]
"""Minibatches and samples of the clients that are calibrated."""


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1e-1), st.floats(1e-9, 1e-2))
def test_an_exact_law_comes_back(a: float, s: float, b: float) -> None:
    """Also 20 epochs of 15 samples, whose second minibatch is half as large as the first."""
    fitted = fit([(steps, passes, a + s * steps + b * passes) for steps, passes in CLIENTS])
    for steps, passes in ((1, 1), (40, 300), (100, 1000)):
        seconds = a + s * steps + b * passes
        assert fitted.start + fitted.step * steps + fitted.sample * passes == pytest.approx(seconds, rel=1e-6)


def test_small_minibatches_are_fitted_apart_from_full_ones() -> None:
    """2 ms a minibatch and 0.1 ms a sample."""
    fitted = fit([(steps, passes, 2e-3 * steps + 1e-4 * passes) for steps, passes in CLIENTS])
    assert (fitted.step, fitted.sample) == pytest.approx((2e-3, 1e-4), rel=1e-6)


def test_no_part_is_negative_and_errors_are_relative() -> None:
    fitted = fit([(0, 10, 1.0), (0, 100, 11.0)])  # a line through both would start at -0.11
    assert fitted.start == 0
    # sum of (b p / T - 1)^2 is least at b = sum(p / T) / sum((p / T)^2)
    p_over_t = np.array([10 / 1.0, 100 / 11.0])
    assert fitted.sample == pytest.approx(p_over_t.sum() / (p_over_t**2).sum())


@pytest.mark.parametrize(
    "points", [[], [(1, 10, 1.0)], [(1, 10, 1.0), (1, 10, 1.1)], [(1, 10, 0.0), (2, 20, 1.0)]]
)
def test_too_few_times_are_refused(points: list[tuple[int, int, float]]) -> None:
    with pytest.raises(ValueError, match="at least two numbers of samples"):
        fit(points)
