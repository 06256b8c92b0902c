"""The papers' bounds by hand, and that a wrong constant is refused."""

from __future__ import annotations

from typing import Any

import pytest

from papers.bounds import buffered_bound, strongly_convex_bound

ROUNDS: dict[str, Any] = {
    "N": 5, "K": 2, "C": 1.0, "E": 3, "J": 8, "mu": 0.5, "rho": 1.0,
    "sigma2": 2.0, "G2": 3.0, "Gamma": 0.25, "distance2": 4.0,
}  # fmt: skip
BUFFERS: dict[str, Any] = {
    "K": 2, "E": 3, "J": 5, "L": 2.0, "eta_l": 0.1, "eta_g": 0.5, "gap": 3.0, "local2": 4.0, "sigma2": 5.0,
    "tau_max": 2,
}  # fmt: skip


def test_theorem_2_of_multi_round_by_hand() -> None:
    """gamma = 16; alpha = 2 + 1.5 + 96; beta = 4 3 9 3 / (2 4) = 40.5; 1 / (16 + 12 - 1) (1120 + 32)."""
    assert strongly_convex_bound(**ROUNDS) == pytest.approx((2 * 140 / 0.25 + 32) / 27)


def test_theorem_2_of_lightsecagg_by_hand() -> None:
    """2 3 / (0.05 3 2 5) + 2 0.05 4 / 2 + 3 4 9 0.01 (0.25 4 4 + 1) 5."""
    assert buffered_bound(**BUFFERS) == pytest.approx(4 + 0.2 + 1.08 * 5 * 5)
    assert buffered_bound(**BUFFERS, drift=False) == pytest.approx(4 + 0.2 + 1.08 * 4 * 5)


@pytest.mark.parametrize("wrong", [{"mu": 0.0}, {"mu": 2.0}, {"C": 0.0}])
def test_constants_that_bound_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="mu="):
        strongly_convex_bound(**ROUNDS | wrong)


def test_steps_that_are_too_large_are_refused() -> None:
    with pytest.raises(ValueError, match=r"at most 1 / L = 0\.5"):
        buffered_bound(**BUFFERS | {"eta_l": 0.5})
