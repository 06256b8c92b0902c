"""F(t) and C(t) by their definitions; Theorem 1 against exact sums and against simulated rounds."""

from __future__ import annotations

from fractions import Fraction
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from papers.bounds import cardinality
from simfl.runs.multi_round_privacy.metrics import cardinalities, fairness_gaps
from simfl.world.participation import Participation
from simfl.world.selection import MultiRound, Random, Selection


@given(arrays(np.int8, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.integers(0, 1)))
def test_section_6_to_the_letter(P: np.ndarray[tuple[int, int], np.dtype[np.int8]]) -> None:
    J, N = P.shape
    F = [[sum(int(P[s, i]) for s in range(t + 1)) / (t + 1) for i in range(N)] for t in range(J)]
    assert fairness_gaps(P).tolist() == pytest.approx([max(row) - min(row) for row in F])
    sizes = [int((row != 0).sum()) for row in P]
    assert cardinalities(P).tolist() == pytest.approx([sum(sizes[: t + 1]) / (t + 1) for t in range(J)])


def test_skipped_rounds_count() -> None:
    history = Participation(3)
    for members in ([0, 1], [], [0, 2], []):
        history.append(members)
    assert cardinalities(history.matrix()).tolist() == [2, 1, 4 / 3, 1]
    assert fairness_gaps(history.matrix()).tolist() == [1, 0.5, 1 / 3, 0.25]
    assert fairness_gaps(Participation(3).matrix()).shape == (0,)
    assert cardinalities(Participation(3).matrix()).shape == (0,)


# --- theorem 1 ----------------------------------------------------------------------------------
N, K = 120, 12


def theorem_1(T: int, p: Fraction) -> Fraction:
    """Equation 13 to the letter."""
    q, n, k = 1 - (1 - p) ** T, N // T, K // T
    missing = sum((comb(n, i) * q**i * (1 - q) ** (n - i) for i in range(n - k + 1, n + 1)), Fraction(0))
    return K * (1 - missing)


def test_family_sizes_of_table_1() -> None:
    families = [MultiRound(users=K, T=T).family(N) for T in (12, 6, 4, 3, 1)]
    assert families == [10, 190, 4060, 91390, comb(N, K)]


@pytest.mark.parametrize("T", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("p", ["0", "0.1", "0.3", "0.5", "0.9", "1"])
def test_cardinality_is_theorem_1(T: int, p: str) -> None:
    exact = float(theorem_1(T, Fraction(p)))
    assert cardinality(N, K, T, float(p)) == pytest.approx(exact, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_a_probability_is_one(p: float) -> None:
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        cardinality(N, K, 3, p)


# A round has K users or none, so the mean of r rounds deviates by K sqrt(c (1 - c) / r), where c = C / K.
# For 4.4 such deviations (a right run in 100,000 exceeds them) to be within 1 % of C it takes
# r >= 4.4^2 10^4 (1 - c) / c rounds: 20,000 do for c > 0.91. Where C is smaller, the test asks for what
# 20,000 rounds can tell.
ROUNDS = 20_000


FAST = [(12, 0.3)]
CASES = [(T, p) for T in (1, 3, 4, 6, 12) for p in (0.1, 0.2, 0.3, 0.4, 0.5)]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("T", "p"),
    [pytest.param(*case, marks=() if case in FAST else pytest.mark.slow) for case in CASES],
)
def test_simulated_rounds_have_the_cardinality_of_theorem_1(T: int, p: float) -> None:
    rng, history = np.random.default_rng([T, int(10 * p)]), Participation(N)
    scheme: Selection = MultiRound(users=K, T=T, fair=False) if T > 1 else Random(users=K)
    total = 0
    for away in rng.random((ROUNDS, N)) < p:
        total += len(scheme.chosen(np.flatnonzero(~away), history, rng) or [])
    C = cardinality(N, K, T, p)
    c = C / K
    deviation = 4.4 * sqrt(c * (1 - c) / ROUNDS) * K
    if c > 0.91:
        assert deviation < 0.01 * C
        assert total / ROUNDS == pytest.approx(C, rel=0.01)
    else:
        assert abs(total / ROUNDS - C) <= deviation + K / ROUNDS
