"""Multi-RoundSecAgg Theorem 1: the fairness gap F is 0 for equal p, and F(J) falls to its noise.

All batches are alike, so the rounds that two of them took part in differ by chance only. In a round that is
not skipped, with n = N / T batches of which k = K / T are chosen, one is in and another is not with
probability k (n - k) / (n (n - 1)). The counts thus spread like independent ones of variance
s^2 = (C / K) k (n - k) / (n (n - 1)) a round, and F(J) is about R_n s / sqrt(J), with R_n the mean range of n
standard normal values.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from papers.bounds import cardinality
from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.selected import participation
from simfl.random_streams import Streams
from simfl.world.selection import MultiRound

N, K, AWAY = 120, 12, 0.3
BATCHES = (3, 4, 6)
ROUNDS = (256, 1024, 4096)
REPEATS = 20
EXPONENT, SLACK = -0.5, 0.05
"""Of J in F(J), and how far the measured one may be away."""
BOUND = 0.1


def gaps(T: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """F after each of ROUNDS, the mean of REPEATS runs."""
    total, away = np.zeros(len(ROUNDS)), np.full(N, AWAY)
    for repeat in range(REPEATS):
        rng = Streams(seed).rng("fairness", T, repeat)
        P = participation(MultiRound(users=K, T=T, fair=False), away, ROUNDS[-1], rng)
        counts = np.cumsum(P, axis=0)[np.array(ROUNDS) - 1]
        total += np.ptp(counts, axis=1) / ROUNDS
    return total / REPEATS


def mean_range(n: int) -> float:
    """Return R_n, the mean of the range of n independent standard normal values.

    >>> round(mean_range(2), 4)
    1.1284
    """
    from scipy.special import ndtr

    below = ndtr(np.linspace(-9, 9, 20_001))
    return float(np.trapezoid(1 - below**n - (1 - below) ** n, dx=18 / 20_000))


def expected(T: int, J: int) -> float:
    """F(J) by the module's text."""
    n, k = N // T, K // T
    s = sqrt(cardinality(N, K, T, AWAY) / K * k * (n - k) / (n * (n - 1)))
    return mean_range(n) * s / sqrt(J)


def run(place: Place) -> Evidence:
    """F(J), its exponent, and the noise that it should be."""
    cells, lines = [], []
    for T in BATCHES:
        F = gaps(T, ENTRY.seed)
        cells += judged(T, F)
        lines.append(Line(f"T = {T}", tuple(map(float, ROUNDS)), tuple(F.tolist())))
    title = f"Fairness gap, equal p = {AWAY}, mean of {REPEATS} runs"
    chart = Chart(title, "rounds J", "F(J)", tuple(lines), log_x=2, log_y=2)
    return Evidence(tuple(cells), (chart,))


def judged(T: int, F: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[Cell]:
    """F -> 0, as 1 / sqrt(J); the noise's size."""
    slope = float(np.polyfit(np.log(ROUNDS), np.log(F), 1)[0])
    statement = "F is 0: what is left falls as 1 / sqrt(J)"
    ours = statement if abs(slope - EXPONENT) <= SLACK else "otherwise"
    words = f"F(J) = {', '.join(f'{f:.4f}' for f in F)} at J = {', '.join(map(str, ROUNDS))}: J^{slope:.3f}"
    J = ROUNDS[-1]
    remark = "the left value by hand: the range of equal batches' counts"
    return [
        Cell(f"T = {T}", statement, ours, compare="order", remark=words),
        Cell(f"F({J}), T = {T}", expected(T, J), float(F[-1]), "", bound=BOUND, remark=remark),
    ]


ENTRY = Entry(
    name="multi_round_fairness",
    paper="Multi-RoundSecAgg",
    where="Theorem 1 (fairness)",
    title="Aggregation fairness gap for equal p, N = 120, K = 12",
    on="rounds drawn one by one with Algorithm 2 for equal p (lambda = 0), p = 0.3",
    how="The theorem states that the expected gap is 0. After J rounds, chance is left: its exponent of J"
    " must be -1/2 within 0.05, and its size that of the range of equal batches' counts, within 10 %.",
    run=run,
)
