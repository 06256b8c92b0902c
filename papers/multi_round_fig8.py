"""Multi-RoundSecAgg Fig. 8 (appendix G.2): users' updates from the sums of many rounds, by least squares."""

from __future__ import annotations

from papers.attacked import Attack, of
from papers.entry import Cell, Entry, Evidence, Place
from papers.running import BUNDLED

ATTACK = Attack(
    "least_squares",
    "reconstruction",
    "cifar10",
    {"learning.model": "lenet5", "learning.partition": {"shared": 200}, "learning.batch_size": 50},
)
PRINTED = {"random": 6.715e-3, "batches_2": 0.7829}
NAMES = {"random": "K = 8 at random", "batches_2": "Multi-RoundSecAgg, T = 2"}
SAID = "all updates are reconstructed at random, none of a batch singled out"


def run(place: Place) -> Evidence:
    """The mean error of eq. 35 under random selection and under batches of two, and the rank of P."""
    outcome = ATTACK.findings(place, ENTRY.seed)
    numbers = {name: of(outcome, name, "sums") for name in NAMES}
    cells = []
    for name, told in NAMES.items():
        printed = PRINTED[name]
        remark = f"{printed:.4g} in the paper, on LeNet and CIFAR-10, rounds 1460 to 1500"
        paper = printed if ATTACK.there else None
        cells.append(Cell(f"{told}: mean error", paper, numbers[name]["mean"], "", "none", remark=remark))
        users = numbers[name]["users"] / (1 if name == "random" else 2)
        cells.append(
            Cell(f"{told}: rank of P", users, numbers[name]["rank"], "", bound=0.0, remark="N / T, of App. G")
        )
    alone = {name: numbers[name]["alone"] for name in NAMES}
    is_so = (alone["random"], alone["batches_2"]) == (numbers["random"]["users"], 0)
    ours = SAID if is_so and numbers["random"]["mean"] < 0.05 else f"alone: {alone}"
    cells.append(Cell("the server reconstructs", SAID, ours, compare="order"))
    ratio = numbers["batches_2"]["mean"] / numbers["random"]["mean"]
    remark = "times the error at random; 117 times in the paper"
    cells.append(Cell("T = 2 over random", None, ratio, "x", "none", remark=remark))
    return Evidence(tuple(cells), on=ATTACK.told)


ENTRY = Entry(
    name="multi_round_fig8",
    paper="Multi-RoundSecAgg",
    where="Fig. 8",
    title="Updates reconstructed from the sums of many rounds, N = 40, K = 8",
    on=f"{BUNDLED}, softmax regression, one label a user, rounds 120 to 199 of 200",
    how="The ranks and the statement are judged; the errors depend on the data and are not.",
    run=run,
    disagreement="Two users of a batch that hold the same label have nearly the same update, so half of their"
    " sum is close to either; a window of 80 rounds averages more noise than the paper's 40.",
)
