"""Each for itself."""

from __future__ import annotations

import numpy as np
import pytest

from simfl.selection.bernoulli import bernoulli
from simfl.selection.history import Participation

NOBODY_YET = Participation(40)


def test_k_of_n_take_part_on_average() -> None:
    rng, N, K, p, rounds = np.random.default_rng(3), 40, 8, 0.3, 4000
    sizes, each = [], np.zeros(N)
    for _ in range(rounds):
        available = np.flatnonzero(rng.random(N) >= p)
        chosen = bernoulli(available, NOBODY_YET, None, rng, probability=K / (N * (1 - p))) or []
        assert set(chosen) <= set(available.tolist())
        sizes.append(len(chosen))
        each[chosen] += 1
    # Each user takes part with K / N, independently: five standard deviations, of the mean and of the worst.
    assert abs(np.mean(sizes) - K) < 5 * np.sqrt(N * 0.2 * 0.8 / rounds)
    assert abs(np.var(sizes) / (N * 0.2 * 0.8) - 1) < 5 * np.sqrt(2 / rounds)
    assert (abs(each / rounds - K / N) < 5 * np.sqrt(0.2 * 0.8 / rounds)).all()


def test_nobody_skips_the_round() -> None:
    rng = np.random.default_rng(0)
    assert bernoulli([], NOBODY_YET, None, rng, probability=1) is None
    assert bernoulli([7, 2], NOBODY_YET, None, rng, probability=1e-12) is None
    assert bernoulli([7, 2], NOBODY_YET, None, rng, probability=1) == [2, 7]


@pytest.mark.parametrize("probability", [0, -0.1, 1.01, float("nan")])
def test_a_probability_is_one(probability: float) -> None:
    with pytest.raises(ValueError, match=r"must be above 0 and at most 1"):
        bernoulli([1], NOBODY_YET, None, np.random.default_rng(0), probability=probability)
