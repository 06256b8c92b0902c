"""T = a + b E n, fitted: known laws come back, real clients are met."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.learning.sgd import fit

PASSES = (10, 20, 40, 80, 160)


@given(st.floats(1e-6, 1.0), st.floats(1e-9, 1e-2))
def test_an_exact_law_comes_back(a: float, b: float) -> None:
    law = fit([(p, a + b * p) for p in PASSES])
    for passes in (1, 50, 1000):
        assert law.start + law.sample * passes == pytest.approx(a + b * passes, rel=1e-6)


def test_no_part_is_negative_and_errors_are_relative() -> None:
    law = fit([(10, 1.0), (100, 11.0)])  # a line through both would start at -0.11
    assert law.start == 0
    # sum of (b p / T - 1)^2 is least at b = sum(p / T) / sum((p / T)^2)
    p_over_t = np.array([10 / 1.0, 100 / 11.0])
    assert law.sample == pytest.approx(p_over_t.sum() / (p_over_t**2).sum())


@pytest.mark.parametrize("points", [[], [(10, 1.0)], [(10, 1.0), (10, 1.1)], [(10, 0.0), (20, 1.0)]])
def test_too_little_is_refused(points: list[tuple[int, float]]) -> None:
    with pytest.raises(ValueError, match="at least two sizes"):
        fit(points)
