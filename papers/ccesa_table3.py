"""CCESA Tables 3 and B.1: who is in the training data, by shadow models."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from statistics import fmean, stdev

from papers.attacked import NAMES, Attack, of, of_uploads
from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.running import BUNDLED

ATTACK = Attack(
    "membership",
    "attacks/membership",
    "cifar10",
    {"learning.model": "vgg11", "learning.epochs": 3, "learning.momentum": 0.5},
)
ACCURACY = {
    "fedavg": (0.7249, 0.7072, 0.7280, 0.6647),
    "secagg": (0.4967, 0.4996, 0.4985, 0.4933),
    "ccesa": (0.4929, 0.5014, 0.4902, 0.5000),
}
PRECISION = {
    "fedavg": (0.7041, 0.6582, 0.6589, 0.6062),
    "secagg": (0.4978, 0.4997, 0.4991, 0.4910),
    "ccesa": (0.4948, 0.5007, 0.4916, 0.5000),
}
"""Of 5,000, 10,000, 15,000 and 50,000 training samples."""
SIZES = {"cifar10": (500, 1000, 1500, 5000), "digits": (10, 20, 40, 100)}
"""Samples of each of ten users."""
SEEDS = (1, 2, 3, 4, 5)
COIN, LEARNT = 0.03, 0.55
"""The distance from a half that is near it, and the accuracy from which an attack has learnt something."""

LEARNS, COINS = "the attack learns", "near a coin's 50 %"


def run(place: Place) -> Evidence:
    """Accuracy, precision and recall of the attack, means over seeds, for each number of samples."""
    sizes = SIZES["cifar10" if ATTACK.there else "digits"]
    cells, curves = list[Cell](), dict[str, list[float]]()
    for column, size in enumerate(sizes):
        few = {"learning.partition": {"few": size}}
        outcomes = [ATTACK.findings(place, ENTRY.seed, {**few, "seed": seed}) for seed in SEEDS]
        for name, told in NAMES.items():
            runs = [of_uploads(found, name) for found in outcomes]
            printed = (ACCURACY[name][column], PRECISION[name][column]) if ATTACK.there else None
            cells += judged(f"{told}, {10 * size} samples", name == "fedavg", runs, printed)
            curves.setdefault(told, []).append(fmean(r["accuracy"] for r in runs))
        everybody = fmean(of(f, "secagg", "global model")["accuracy"] for f in outcomes)
        curves.setdefault("the global model", []).append(everybody)
    x = tuple(10.0 * size for size in sizes)
    lines = tuple(Line(name, x, tuple(y)) for name, y in curves.items())
    chart = Chart("Accuracy of membership inference", "training samples", "accuracy", lines, log_x=10)
    return Evidence(tuple(cells), (chart,), ATTACK.told)


def judged(
    label: str, plain: bool, runs: list[Mapping[str, float]], printed: tuple[float, float] | None
) -> list[Cell]:
    """What the text says of a column's accuracy, and the numbers, beside those `printed` of the same data."""
    accuracy, spread = fmean(r["accuracy"] for r in runs), stdev(r["accuracy"] for r in runs)
    near = COINS if abs(accuracy - 0.5) <= COIN else "in between"
    remark = f"accuracy {accuracy:.3f} ± {spread:.3f} over seeds"
    said, ours = LEARNS if plain else COINS, LEARNS if accuracy >= LEARNT else near
    known = [r["precision"] for r in runs if not isnan(r["precision"])]
    precision = fmean(known) if known else None
    exact = f"precision {precision:.3f}" if precision is not None else "nobody taken for a member"
    recall, auc = fmean(r["recall"] for r in runs), fmean(r["auc"] for r in runs)
    more = f"{exact}, recall {recall:.3f}, auc {auc:.3f}"
    first, second = printed or (None, None)
    cells = [
        Cell(label, said, ours, compare="order", remark=remark),
        Cell(f"{label}: accuracy", first, accuracy, "", "none", remark=more),
    ]
    return [*cells, Cell(f"{label}: precision", second, precision, "", "none")] if printed else cells


ENTRY = Entry(
    name="ccesa_table3",
    paper="CCESA",
    where="Tables 3, B.1",
    title="Membership inference by shadow models, ten users",
    on=f"{BUNDLED}, a small network, 100 to 1,000 samples for the paper's 5,000 to 50,000",
    how=f"Accuracy within {COIN} of a half counts as near a coin's, from {LEARNT} on as learnt; the paper's"
    " numbers are of CIFAR-10 and stand beside ours only where that is there.",
    run=run,
    disagreement="A small network on digits overfits less than VGG-11 on CIFAR-10.",
)
