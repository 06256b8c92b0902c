"""Multi-RoundSecAgg Theorem 1 and Fig. 2: the average cardinality C, measured on rounds that are selected.

C is K times the share of rounds that find K / T whole batches, so r rounds measure it with a relative
standard error of sqrt((1 - c) / (c r)), c = C / K. A cell takes as many rounds as it needs for 3.3 such
errors to be within one per cent, and at most `MOST`; where these do not do, it is told and not judged.
"""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np

from papers.bounds import cardinality
from papers.entry import Basis, Cell, Chart, Entry, Evidence, Line, Place
from simfl.random_streams import Streams
from simfl.world.participation import Participation
from simfl.world.selection import MultiRound

N, K = 120, 12
AWAY = (0.1, 0.2, 0.3, 0.4, 0.5)
BATCHES = (1, 2, 3, 4, 6, 12)
BOUND = 0.01
ERRORS = 3.3
LEAST, MOST, AT_ONCE = 20_000, 4_500_000, 10_000


def rounds_for(c: float) -> int:
    """How many rounds measure C = c K to within `BOUND`, but at most `MOST`."""
    return min(MOST, max(LEAST, ceil(ERRORS**2 * (1 - c) / c / BOUND**2)))


def measured(T: int, p: float, rounds: int, seed: int) -> float:
    """The mean number of users that a round takes when each of N is away with probability p."""
    scheme = MultiRound(users=K, T=T, fair=False)
    rng, history, total = Streams(seed).rng("theorem 1", T, str(p)), Participation(N), 0
    for start in range(0, rounds, AT_ONCE):
        for here in rng.random((min(AT_ONCE, rounds - start), N)) >= p:
            total += len(scheme.chosen(np.flatnonzero(here), history, rng) or ())
    return total / rounds


def worth(C: float, K: int = K, bound: float = BOUND) -> Basis:
    """Where hardly a round is skipped, C is K but for less than the bound, whatever is selected."""
    return "predicted" if (1 - bound) * K > C else "by construction"


def run(place: Place) -> Evidence:
    """C for each size of batches and each p, beside Theorem 1."""
    cells, lines = [], []
    for p in AWAY:
        found = []
        for T in BATCHES:
            C = cardinality(N, K, T, p)
            rounds = rounds_for(C / K)
            error = sqrt((1 - C / K) / (C / K * rounds))
            enough = ERRORS * error <= BOUND * (1 + 1e-6)
            ours = measured(T, p, rounds, ENTRY.seed)
            remark = f"{rounds:,} rounds, standard error {100 * error:.2g} %"
            bound = BOUND if enough else None
            label, basis = f"C, T = {T}, p = {p}", worth(C)
            cells.append(Cell(label, C, ours, "users", bound=bound, remark=remark, basis=basis))
            found.append(ours)
        lines.append(Line(f"p = {p}", tuple(map(float, BATCHES)), tuple(found)))
    chart = Chart("Measured C against T, N = 120, K = 12", "T", "C, users", tuple(lines))
    return Evidence(tuple(cells), (chart,))


ENTRY = Entry(
    name="multi_round_theorem1",
    paper="Multi-RoundSecAgg",
    where="Theorem 1, Fig. 2",
    title="Average aggregation cardinality, N = 120, K = 12",
    on="rounds drawn one by one with the selection scheme that runs use",
    how="The mean over rounds must lie within 1 % of Theorem 1, whose formula's value stands in the paper's"
    " column, wherever the number of rounds suffices. Where C is 12 but for less than 1 %, any scheme that"
    " skips hardly a round would agree.",
    run=run,
)
