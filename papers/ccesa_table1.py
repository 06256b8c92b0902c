"""CCESA Table 1: communication and computation of CCESA, SA and FedAvg, counted against n."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import log, sqrt

import numpy as np

from papers import measures
from papers.counted import Round, count
from papers.entry import Cell, Entry, Evidence, Place
from papers.exponents import SLACK, Grid, Quantity, cells_of, exponent, linear, one, square
from simfl.protocols import graph_design
from simfl.protocols.machine import SERVER, Params

USERS = (128, 256, 512, 1024)
LENGTHS = (2**14, 2**16, 2**18)
PROTOCOLS = {"ccesa": "CCESA", "secagg": "SA", "fedavg": "FedAvg"}
Q_TOTAL, LOST = 0.1, 10
"""q_total, and which fraction of the users never upload: one in LOST."""
PHASES = ("offline", "upload", "recovery")


@cache
def counted(protocol: str, n: int, length: int) -> Round:
    """A round at p* with t of Remark 4; the paper's t of SA, n / 2 + 1."""
    p = graph_design.p_star(n, Q_TOTAL) if protocol == "ccesa" else 1.0
    t = graph_design.threshold(n, p) if protocol == "ccesa" else n // 2 + 1
    return count(protocol, Params(d=length - 1, q=2**32 - 5, T=n // 2, t=t, p=p), n, n // LOST, seed=1)


def root(n: int) -> float:
    """sqrt(n log n), the neighbours of a client."""
    return sqrt(n * log(n))


def n_root(n: int) -> float:
    """n sqrt(n log n)."""
    return n * root(n)


def n_log(n: int) -> float:
    """n log n."""
    return n * log(n)


def communication_client(r: Round) -> float:
    return measures.offline_communication(r) + measures.online_communication(r)


def communication_server(r: Round) -> float:
    return sum(n for of in (r.up, r.down) for n in of.values()) / 4


def computation_client(r: Round) -> float:
    return sum(measures.operations(r.of_users(phase)) for phase in PHASES)


def computation_server(r: Round) -> float:
    return sum(measures.operations(r.work[SERVER, phase]) for phase in PHASES)


TABLE = (
    Quantity(
        "communication, client",
        communication_client,
        (("O(sqrt(n log n) + m)", one, root), ("O(n + m)", one, linear), ("O(m)", one, None)),
    ),
    Quantity(
        "communication, server",
        communication_server,
        (
            ("O(n sqrt(n log n) + mn)", linear, n_root),
            ("O(n² + mn)", linear, square),
            ("O(mn)", linear, None),
        ),
    ),
    Quantity(
        "computation, client",
        computation_client,
        (("O(n log n + m sqrt(n log n))", root, n_log), ("O(n² + mn)", linear, square), None),
    ),
    Quantity(
        "computation, server",
        computation_server,
        (("O(mn log n)", n_log, None), ("O(mn²)", square, None), ("O(mn)", linear, None)),
    ),
)


def run(place: Place) -> Evidence:
    """The table."""
    cells: list[Cell] = cells_of(Grid(USERS, LENGTHS, counted, PROTOCOLS), TABLE)
    return Evidence((*cells, *bounds(), nothing_to_do()))


def bounds() -> tuple[Cell, ...]:
    """How the bounds of Theorems 5 and 6 fall against n: at p* for CCESA, at p = 1 for SA."""
    graphs = [(n, graph_design.p_star(n, Q_TOTAL)) for n in USERS]
    unreliable = [
        graph_design.unreliable_bound(n, p, Q_TOTAL, graph_design.threshold(n, p)) for n, p in graphs
    ]
    complete = [graph_design.unreliable_bound(n, 1.0, Q_TOTAL, n // 2 + 1) for n in USERS]
    exposed = [graph_design.not_private_bound(n, p, Q_TOTAL) for n, p in graphs]
    shown = ", ".join(f"{bound:.3g}" for bound in exposed)
    return (
        reliability("CCESA, >= 1 - O(n exp(-sqrt(n log n)))", root, unreliable),
        reliability("SA, >= 1 - O(n exp(-n))", float, complete),
        Cell(
            "privacy, CCESA, >= 1 - O(n^-C), C > 0: C in Theorem 6's bound",
            0.0, exponent(USERS, [1 / b for b in exposed]),
            "exponent", "at least", 0.0, f"bounds at n = 128 .. 1024: {shown}", "by construction",
        ),
    )  # fmt: skip


def reliability(stated: str, falls: Callable[[int], float], bounds: Sequence[float]) -> Cell:
    """Theorem 5's bound is n exp(-c falls(n)): c by a line through its logarithms, beside the stated 1."""
    found = [log(n / bound) for n, bound in zip(USERS, bounds, strict=True)]
    slope = float(np.polyfit([falls(n) for n in USERS], found, 1)[0])
    remark = "bounds at n = 128 .. 1024: " + ", ".join(f"{bound:.3g}" for bound in bounds)
    label = f"reliability, {stated}: factor in the exponent of Theorem 5's bound"
    return Cell(label, 1.0, slope, "", "at least", SLACK, remark, "by construction")


def nothing_to_do() -> Cell:
    """FedAvg's client, which does nothing but train."""
    work = max(computation_client(counted("fedavg", n, LENGTHS[0])) for n in USERS)
    statement = "no operations"
    ours = statement if work == 0 else f"{work:g} operations"
    label = "computation, client, FedAvg, 0"
    return Cell(label, statement, ours, compare="order", basis="by construction")  # it has no machine's work


ENTRY = Entry(
    name="ccesa_table1",
    paper="CCESA",
    where="Table 1",
    title="Costs of CCESA, SA and FedAvg, reliability and privacy",
    on="counted operations and bytes of shadow rounds of the protocols' own machines",
    how="As for LightSecAgg's Table 1, with n for N and m for d. A line through the logarithms gives the"
    " exponent of n, for the term with m and for the rest separately; it may exceed the stated one by 0.02,"
    " for lower terms. The exponent of m is 1 by construction. n = 128 .. 1024, p = p* at q_total = 0.1, t by"
    " Remark 4, one client in ten lost after sharing.",
    run=run,
    disagreement="CCESA's server removes one mask for each neighbour of each lost client. With a fixed"
    " share of the clients lost, these are n sqrt(n log n) masks; the paper's n log n holds if the lost"
    " clients are no more than a client's neighbours. Theorem 5's bounds fall more slowly than the stated"
    " reliabilities, which are O() of an exponential: App. E has Theta(sqrt(n log n)) in the exponent, and"
    " Table 1 leaves its constant out, which is below 1 here for both protocols. The privacy of SA, and both"
    " of FedAvg, follow from their definitions and are not listed.",
)
