"""C for unequal p_i and the rank's bound, against all outcomes and by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from papers.bounds import cardinality, cardinality_of, rank_bound


@pytest.mark.parametrize(("K", "T"), [(2, 1), (2, 2), (4, 2), (3, 3)])
def test_cardinality_is_the_mean_over_all_outcomes(K: int, T: int) -> None:
    """Every set of 6 users who are there, with its probability."""
    p = [0.1, 0.5, 0.3, 0.9, 0.2, 0.0]
    C = 0.0
    for here in product((False, True), repeat=6):
        chance = np.prod([1 - away if there else away for away, there in zip(p, here, strict=True)])
        whole = sum(all(here[start : start + T]) for start in range(0, 6, T))
        C += chance * K * (whole >= K // T)
    assert cardinality_of(p, K, T) == pytest.approx(C, rel=1e-12)


@pytest.mark.parametrize("T", [1, 3, 4, 6, 12])
def test_equal_p_is_theorem_1(T: int) -> None:
    assert cardinality_of([0.3] * 120, 12, T) == pytest.approx(cardinality(120, 12, T, 0.3), rel=1e-9)


@pytest.mark.parametrize("p", [[0.1, 1.1], [-0.1, 0.5], [float("nan"), 0.5]])
def test_no_probability_is_refused(p: list[float]) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        cardinality_of(p, 1, 1)


def test_the_bound_by_hand() -> None:
    """N = 2, t = 1/2: 1 - 4/4 - 2/4."""
    assert rank_bound(2, 1) == -0.5
