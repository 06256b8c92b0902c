"""Draws of a scenario's distributions, each held within the bounds of a given value."""

from __future__ import annotations

from math import exp, log1p
from statistics import NormalDist
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from simfl.blocks import GREATEST, LEAST, Distribution, Exponential, Fixed, LogNormal, Uniform

STANDARD_NORMAL = NormalDist()


def draw(distribution: Distribution, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Return `size` draws."""
    match distribution:
        case Fixed(value=value):
            return np.full(size, value)
        case Uniform(low=low, high=high):
            return rng.uniform(low, high, size)
        case LogNormal(median=median, sigma=sigma):
            return held(rng.lognormal(np.log(median), sigma, size))
        case Exponential(mean=mean):
            return held(rng.exponential(mean, size))
        case _:
            assert_never(distribution)


def held(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return draws within 1e-9 and 1e9: no time is below a nanosecond, and no product beyond a float."""
    return np.clip(draws, LEAST, GREATEST)


def quantile(distribution: Distribution, u: float) -> float:
    """Return the draw that a uniform one, 0 < u < 1, stands for.

    >>> quantile(Uniform(low=8, high=16), 0.25)
    10.0
    """
    match distribution:
        case Fixed(value=value):
            drawn = value
        case Uniform(low=low, high=high):
            drawn = low + (high - low) * u
        case LogNormal(median=median, sigma=sigma):
            drawn = median * exp(sigma * STANDARD_NORMAL.inv_cdf(u))
        case Exponential(mean=mean):
            drawn = -mean * log1p(-u)
        case _:
            assert_never(distribution)
    return min(max(drawn, LEAST), GREATEST)


def mean_of(distribution: Distribution) -> float:
    """Return the mean, of draws that are not held.

    >>> mean_of(Uniform(low=8, high=16))
    12.0
    """
    match distribution:
        case Fixed(value=value):
            return value
        case Uniform(low=low, high=high):
            return (low + high) / 2
        case LogNormal(median=median, sigma=sigma):
            return float(median * np.exp(sigma**2 / 2))
        case Exponential(mean=mean):
            return mean
        case _:
            assert_never(distribution)
