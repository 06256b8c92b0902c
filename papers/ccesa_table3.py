"""CCESA Tables 3 and B.1: who is in the training data, by shadow models."""

from __future__ import annotations

from statistics import fmean, stdev

from papers.attacked import BUNDLED, findings, of
from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.running import Data, found

DATA = Data("cifar10", {"learning.model": "vgg11", "learning.epochs": 3, "learning.momentum": 0.5})
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
NAMES = {"fedavg": "federated averaging", "secagg": "SA", "ccesa": "CCESA"}
SIZES = {"cifar10": (500, 1000, 1500, 5000), "digits": (10, 20, 40, 100)}
"""Samples of each of ten users."""
SEEDS = (1, 2, 3, 4, 5)
COIN, LEARNT = 0.03, 0.55
"""The distance from a half that is near it, and the accuracy from which an attack has learnt something."""


def run(place: Place) -> Evidence:
    """Accuracy, precision and recall of the attack, means over seeds, for each number of samples."""
    data = found([DATA])
    sizes = SIZES["cifar10" if data else "digits"]
    scenario = place.root / "scenarios" / "attacks" / "membership.yaml"
    cells, curves = list[Cell](), dict[str, list[float]]()
    for column, size in enumerate(sizes):
        changes = {**(data.overrides if data else {}), "learning.partition": {"few": size}}
        outcomes = [findings("membership", scenario, {**changes, "seed": seed}, ENTRY.seed) for seed in SEEDS]
        for name, told in NAMES.items():
            read = "uploads" if name == "fedavg" else "masked uploads"
            runs = [of(found_, name, read) for found_ in outcomes]
            means = {key: _mean([r[key] for r in runs]) for key in ("accuracy", "precision", "recall", "auc")}
            spread = stdev(r["accuracy"] for r in runs)
            label = f"{told}, {10 * size} samples"
            said = "the attack learns" if name == "fedavg" else "near a coin's 50 %"
            learns = means["accuracy"] >= LEARNT
            near = abs(means["accuracy"] - 0.5) <= COIN
            ours = "the attack learns" if learns else "near a coin's 50 %" if near else "in between"
            remark = f"accuracy {means['accuracy']:.3f} ± {spread:.3f} over seeds"
            cells.append(Cell(label, said, ours, compare="order", remark=remark))
            remark = (
                f"precision {means['precision']:.3f}, recall {means['recall']:.3f}, auc {means['auc']:.3f}"
            )
            printed = ACCURACY[name][column] if data else None
            cells.append(Cell(f"{label}: accuracy", printed, means["accuracy"], "", "none", remark=remark))
            if data:
                printed = PRECISION[name][column]
                cells.append(Cell(f"{label}: precision", printed, means["precision"], "", "none"))
            curves.setdefault(told, []).append(means["accuracy"])
        everybody = _mean([of(f, "secagg", "global model")["accuracy"] for f in outcomes])
        curves.setdefault("the global model", []).append(everybody)
    x = tuple(10.0 * size for size in sizes)
    lines = tuple(Line(name, x, tuple(y)) for name, y in curves.items())
    chart = Chart("Accuracy of membership inference", "training samples", "accuracy", lines, log_x=10)
    return Evidence(tuple(cells), (chart,), data.told if data else "")


def _mean(values: list[float]) -> float:
    """The mean of those that are numbers: there is no precision where nobody is taken for a member."""
    known = [value for value in values if value == value]
    return fmean(known) if known else 0.0


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
