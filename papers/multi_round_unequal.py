"""Multi-RoundSecAgg section 6 and the earlier version's App. G: C where users are away with different p_i.

Theorem 1 has one p. For a given list of p_i, the number of whole batches is Poisson-binomial; C follows
exactly, and rounds that are really selected must find it.
"""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from papers.bounds import cardinality_of
from papers.entry import Cell, Entry, Evidence, Place
from papers.multi_round_theorem1 import worth
from papers.selected import participation
from simfl.random_streams import Streams
from simfl.world.selection import MultiRound

AWAY = (0.1, 0.2, 0.3, 0.4, 0.5)
"""p_i is one of these, uniformly (section 6)."""
N, K = 120, 12
BATCHES = (12, 6, 4, 3)
DRAWS = 1000
BOUND, ERRORS = 0.02, 3.3
"""The measured C must lie within BOUND, which ERRORS standard errors fill."""
ALMOST_ONE = 0.99
ABLATION = ((240, 12), (120, 24))


def drawn(N: int, *name: str | int) -> NDArray[np.float64]:
    """p_i of N users."""
    return Streams(ENTRY.seed).rng("unequal", *name).choice(AWAY, N)


def over_draws(N: int, K: int, T: int) -> NDArray[np.float64]:
    """C of DRAWS lists of p_i."""
    return np.array([cardinality_of(drawn(N, N, k).tolist(), K, T) for k in range(DRAWS)])


def measured(away: NDArray[np.float64], T: int, rounds: int) -> float:
    """The mean number of users of a round, with Algorithm 2's preference for those who took part least."""
    rng = Streams(ENTRY.seed).rng("unequal rounds", T)
    return float(participation(MultiRound(users=K, T=T), away, rounds, rng).sum(axis=1).mean())


def run(place: Place) -> Evidence:
    """C of one list of p_i, measured; its spread over lists; the ablation's (N, K)."""
    cells = []
    for T in BATCHES:
        away = drawn(N, "one list")
        C = cardinality_of(away.tolist(), K, T)
        rounds = min(60_000, max(5_000, ceil(ERRORS**2 * (K - C) / C / BOUND**2)))
        error = sqrt((K - C) / (C * rounds))
        remark = f"exact beside {rounds:,} rounds of Algorithm 2, standard error {100 * error:.2g} %"
        label = f"C, T = {T}, one list of p_i"
        ours, basis = measured(away, T, rounds), worth(C, K, BOUND)
        cells.append(Cell(label, C, ours, "users", bound=BOUND, remark=remark, basis=basis))
    cells += [spread(N, K, T, over_draws(N, K, T)) for T in BATCHES]
    for n, k in ABLATION:
        found = {T: over_draws(n, k, T) for T in (k, 6, 4, 3)}
        cells += [spread(n, k, T, C) for T, C in found.items()]
        cells += ablation(n, k, found)
    return Evidence(tuple(cells))


def spread(N: int, K: int, T: int, C: NDArray[np.float64]) -> Cell:
    """Mean and deviation over lists of p_i, which the paper does not print."""
    label = f"mean C over lists of p_i, ({N}, {K}), T = {T}"
    remark = f"standard deviation {C.std():.2f} over {C.size} lists"
    return Cell(label, None, float(C.mean()), "users", "none", remark=remark)


def ablation(N: int, K: int, found: dict[int, NDArray[np.float64]]) -> list[Cell]:
    """What is said of C at another (N, K): T = K is the partition."""
    means = {T: float(C.mean()) for T, C in found.items()}
    statement = "C of the partition is much smaller"
    others = min(C for T, C in means.items() if T != K)
    ours = statement if 2 * means[K] <= others else "otherwise"
    remark = f"{means[K]:.3g} against {others:.3g} users or more; much: half or less"
    cells = [Cell(f"({N}, {K})", statement, ours, compare="order", remark=remark)]
    if K == 24:
        statement = "P[all partitions are not available] almost one"
        none = 1 - means[K] / K
        ours = statement if none >= ALMOST_ONE else "otherwise"
        remark = f"{none:.5f} over lists of p_i; almost: {ALMOST_ONE} or more"
        cells.append(Cell(f"({N}, {K})", statement, ours, compare="order", remark=remark))
    return cells


ENTRY = Entry(
    name="multi_round_unequal",
    paper="Multi-RoundSecAgg",
    where="section 6 and App. G of an earlier version (its Fig. 9)",
    title="Average aggregation cardinality where users have different drop-out probabilities",
    on="lists of p_i drawn uniformly from {0.1, .., 0.5}; rounds drawn one by one with Algorithm 2; nothing"
    " is trained",
    how="The paper gives no formula for different p_i (Remark 10). The Poisson-binomial value is in the"
    " paper's column, and the measured mean of rounds must lie within 2 % of it, which proves most where C is"
    " further than that from K. Of the ablation, statements on C are judged here; those on"
    " accuracies have their own entry.",
    run=run,
)
