"""Multi-RoundSecAgg Theorem 3: after N rounds of random selection, P has rank N almost surely.

The rank is taken modulo a prime, which is certain not to be above the true one; rank N is thus certain.
"""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import numpy as np

from papers.bounds import rank_bound
from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.selected import participation
from simfl.random_streams import Streams
from simfl.runs.multi_round_privacy.modular import PRIMES, rank
from simfl.world.selection import Bernoulli, Random, Selection

AWAY = 0.1
SETTINGS = {(20, 4): 2000, (30, 6): 4000, (40, 8): 4000, (120, 12): 100}
"""(N, K) -> how often N rounds are drawn."""
ERRORS = 3.3
"""Standard errors by which a share of draws may exceed the bound."""


def schemes(N: int, K: int) -> dict[str, Selection]:
    """The two of the theorem, K users on average."""
    return {"K-uniform": Random(users=K), "i.i.d.": Bernoulli(probability=K / (N * (1 - AWAY)))}


def falls_short(scheme: Selection, N: int, draws: int, seed: int) -> float:
    """Return the share of draws of N rounds whose P has a rank below N."""
    rng, away = Streams(seed).rng("theorem 3", scheme.kind, N), np.full(N, AWAY)
    ranks = (rank(participation(scheme, away, N, rng), PRIMES[0]) for _ in range(draws))
    return sum(r < N for r in ranks) / draws


def run(place: Place) -> Evidence:
    """P[rank < N] of both schemes for each N and K, beside eq. 32 for the second."""
    cells, short = [], dict[str, list[float]]()
    for (N, K), draws in SETTINGS.items():
        limit = 1 - rank_bound(N, K)
        for name, scheme in schemes(N, K).items():
            found = falls_short(scheme, N, draws, ENTRY.seed)
            short.setdefault(name, []).append(found)
            cells.append(cell(name, N, K, found, limit, draws))
    small = [N for N, K in SETTINGS if N == 5 * K]
    for name, shares in short.items():
        cells.append(falling(name, small, shares[: len(small)]))
    x = tuple(map(float, small))
    lines = [Line(name, x, tuple(y[: len(small)])) for name, y in short.items()]
    lines.append(Line("1 - bound (32)", x, tuple(1 - rank_bound(N, N // 5) for N in small)))
    chart = Chart("P[rank < N] after N rounds, K = N / 5", "N", "share of draws", tuple(lines))
    return Evidence(tuple(cells), (chart,))


def cell(name: str, N: int, K: int, found: float, limit: float, draws: int) -> Cell:
    """P[rank < N]: judged where eq. 32 is about it, otherwise told beside an unknown constant (eq. 31)."""
    label = f"P[rank < N], {name}, N = {N}, K = {K}"
    remark = f"{draws} draws of N rounds, {round(found * draws)} of a smaller rank"
    if name != "i.i.d.":
        return Cell(label, None, found, compare="none", remark=f"{remark}; eq. 31 has an unknown constant")
    slack = ERRORS * sqrt(max(limit, 1 / draws) / draws)
    return Cell(label, limit, found, "", "at most", slack, f"{remark}; P[rank N] is at least {1 - limit:.4f}")


def falling(name: str, users: list[int], shares: list[float]) -> Cell:
    """Exponentially fast: each step of N by a third or more cuts the share by half at least."""
    statement = "1 - P falls exponentially"
    holds = all(after <= before / 2 for before, after in pairwise(shares))
    words = ", ".join(f"{share:.4f} at N = {N}" for N, share in zip(users, shares, strict=True))
    return Cell(
        f"{name}, K = N / 5", statement, statement if holds else "otherwise", compare="order", remark=words
    )


ENTRY = Entry(
    name="multi_round_theorem3",
    paper="Multi-RoundSecAgg",
    where="Theorem 3",
    title="Rank of the participation matrix after N rounds of random selection",
    on="rounds drawn one by one with the selection schemes that runs use; each user is away with p = 0.1",
    how="Eq. 32 bounds the probability of a smaller rank under i.i.d. selection; the measured share may"
    " exceed it by 3.3 standard errors. Its o(1) counts as 0. Eq. 31 has a constant that the paper does not"
    " give, so K-uniform selection is shown. Exponentially: at K = N / 5 the share halves at least from N ="
    " 20 to 30 to 40.",
    run=run,
    disagreement="Eq. 32 is nearly met with equality at N = 40: a user who is never chosen, or a round"
    " without users, is the usual cause, and the bound counts both.",
)
