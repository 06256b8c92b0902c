"""The server's step, and how it discounts stale updates (LightSecAgg App. F)."""

import numpy as np
from numpy.typing import NDArray


def apply(weights: NDArray[np.float32], g: NDArray[np.float64], lr: float) -> NDArray[np.float32]:
    """x^(t+1) = x^(t) - eta_g g, [1, d] (eqs. 26, 37).

    weights: x^(t) [1, d]. g: the weighted mean of the updates Delta [1, d]. lr: eta_g. Computed in
    float64 and rounded once. ValueError if the shapes differ.
    """
    if weights.shape != g.shape:
        raise ValueError(f"shapes differ: weights {weights.shape} and g {g.shape}")
    return (weights.astype(np.float64) - lr * g).astype(np.float32)


def constant(tau: int) -> float:
    """s(tau) = 1 for a staleness of tau >= 0 aggregations."""
    return 1.0


def polynomial(tau: int, alpha: float) -> float:
    """s(tau) = (1 + tau)^-alpha, below eq. 26; tau >= 0 aggregations, otherwise ValueError."""
    if tau < 0:
        raise ValueError(f"staleness tau={tau} must not be negative")
    return float((1 + tau) ** -alpha)
