"""CCESA Fig. 4 at the paper's n = 1000: how many rounds are reliable (Theorem 1) at each p.

Nothing is trained: a round that is reliable gives the sum that SA gives, and one that is not gives none. So
the accuracy of SA is kept wherever rounds are reliable.
"""

from __future__ import annotations

import numpy as np

from papers.entry import Cell, Entry, Evidence, Place
from simfl.protocols import graph_design, graphs
from simfl.random_streams import Streams

N, Q_TOTAL = 1000, 0.1
ROUNDS = 100
P_STAR = 0.3106
SUFFICIENT = (P_STAR, 0.25)
"""What the text says has the accuracy of SA after 200 rounds."""
BELOW = (0.2, 0.15)


def round_of(p: float, number: int, n: int = N, q_total: float = Q_TOTAL) -> graphs.Evolution:
    """A graph of n users with t of Remark 4, who are lost at each of four steps."""
    streams = Streams(ENTRY.seed)
    graph = graphs.erdos_renyi(range(n), p, streams.bytes("reliability", str(p), number))
    stays = streams.rng("losses", number).random((4, n)) >= graph_design.step_rate(q_total)
    V1, V2, V3, V4 = (frozenset(np.flatnonzero(there).tolist()) for there in np.cumprod(stays, axis=0))
    t = dict.fromkeys(range(n), graph_design.threshold(n, p))
    return graphs.Evolution(graph, t, V1, V2, V3, V4)


def reliable(p: float) -> int:
    """How many of ROUNDS rounds are reliable."""
    return sum(round_of(p, number).reliable for number in range(ROUNDS))


def run(place: Place) -> Evidence:
    """The share of reliable rounds, judged where the text says something."""
    cells = [
        Cell(
            "p*", P_STAR, graph_design.p_star(N, Q_TOTAL), bound=2e-4, basis="by construction", remark="eq. 5"
        )
    ]
    cells += [cell(p, reliable(p)) for p in (*SUFFICIENT, *BELOW)]
    return Evidence(tuple(cells))


def cell(p: float, good: int) -> Cell:
    """Sufficient for the accuracy of SA: every round is reliable."""
    t = graph_design.threshold(N, p)
    remark = f"{good} of {ROUNDS} rounds reliable, t = {t}"
    if p not in SUFFICIENT:
        return Cell(f"reliable rounds, p = {p}", None, good / ROUNDS, compare="none", remark=remark)
    statement = "sufficient for the performance of SA"
    ours = statement if good == ROUNDS else "rounds are lost"
    return Cell(f"p = {p}", statement, ours, compare="order", remark=remark)


ENTRY = Entry(
    name="ccesa_reliability",
    paper="CCESA",
    where="Fig. 4 (reliability)",
    title="Reliable rounds of CCESA at n = 1000, q_total = 0.1",
    on="random graphs and losses at four steps, n = 1000 as in the paper; nothing is trained",
    how="The text states that p* = 0.3106 and p = 0.25 reach the accuracy of SA. A reliable round gives the"
    " sum that SA gives, so all rounds must be reliable there. Smaller p are shown.",
    run=run,
)
