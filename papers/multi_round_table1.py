"""Multi-RoundSecAgg Table 1: how many sets of users each scheme chooses from, by eq. 8."""

from __future__ import annotations

from math import comb, log10

from papers.entry import Basis, Cell, Entry, Evidence, Place
from simfl.world.selection import MultiRound

N, K = 120, 12
BASIS: Basis = "by construction"
"""Of all cells: both sides are the paper's formula."""

PAPER = {12: (10, "user partition"), 6: (190, ""), 4: (4060, ""), 3: (91389, "")}
"""T -> the printed size and what the scheme is called, Multi-RoundSecAgg unless said."""


def run(place: Place) -> Evidence:
    """The sizes for N = 120, K = 12."""
    cells = []
    for T, (printed, name) in PAPER.items():
        ours = MultiRound(users=K, T=T).family(N)
        batches, chosen = N // T, K // T
        remark = f"C({batches}, {chosen}) = {ours}; the paper prints {printed}" if ours != printed else ""
        cells.append(
            Cell(
                f"{name or 'Multi-RoundSecAgg'}, T = {T}",
                printed,
                ours,
                "sets",
                bound=0.0,
                remark=remark,
                basis=BASIS,
            )
        )
    sets = comb(N, K)
    for name in ("Random", "Weighted random"):
        remark = f"C(120, 12) = {sets:.4g}: any K users"
        cells.append(
            Cell(name, "~ 10^16", f"~ 10^{round(log10(sets))}", "sets", "order", remark=remark, basis=BASIS)
        )
    return Evidence(tuple(cells))


ENTRY = Entry(
    name="multi_round_table1",
    paper="Multi-RoundSecAgg",
    where="Table 1",
    title="Family size, N = 120, K = 12",
    on="eq. 8",
    how="Exact counts by the formula, without enumerating the family.",
    run=run,
    disagreement="C(40, 4) = 91390; the paper prints 91389.",
)
