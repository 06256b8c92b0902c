"""Intervals by hand and by SciPy's own test, digits that follow them, and ties."""

from __future__ import annotations

import pytest
from scipy import stats

from simfl.runs.results.statistics import Estimate, estimate, student_quantile


def test_the_interval_is_student_s() -> None:
    """t of 3 degrees of freedom is 3.1824: 2.5 ± 3.1824 x 1.2910 / 2."""
    found = estimate([1.0, 2.0, 3.0, 4.0])
    assert (found.mean, found.n) == (2.5, 4)
    assert found.half == pytest.approx(3.1824 * 1.29099 / 2, rel=1e-4)
    low, high = stats.ttest_1samp([1.0, 2.0, 3.0, 4.0], 0).confidence_interval(0.95)
    assert (found.mean - (found.half or 0), found.mean + (found.half or 0)) == pytest.approx((low, high))


def test_quantiles_are_scipy_s() -> None:
    for df in (*range(1, 60), 99, 100, 999, 100_000):
        assert student_quantile(df) == pytest.approx(float(stats.t.ppf(0.975, df)), rel=1e-11)


def test_one_value_has_no_interval() -> None:
    assert estimate([5.0]) == Estimate(5.0, None, 1)
    assert estimate([5.0]).text() == "5.000"


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (0.22958, 0.0312, "0.23±0.03"),
        (0.22958, 0.0132, "0.230±0.013"),
        (81.06, 7.2, "81±7"),
        (812.4, 130.0, "812±130"),
        (0.0561, 0.00002, "0.056±0.000"),
    ],
)
def test_digits_follow_the_interval(mean: float, half: float, text: str) -> None:
    assert Estimate(mean, half, 9).text() == text


def test_intervals_that_meet_are_a_tie() -> None:
    assert Estimate(1.0, 0.2, 5).ties(Estimate(1.3, 0.1, 5))
    assert not Estimate(1.0, 0.2, 5).ties(Estimate(1.31, 0.1, 5))
    assert Estimate(1.0, None, 1).ties(Estimate(1.0, None, 1))
    assert not Estimate(1.0, None, 1).ties(Estimate(1.001, None, 1))
