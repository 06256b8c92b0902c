"""Multi-RoundSecAgg Tables 2 to 4 and Figs 5 to 7: accuracy of the six schemes on IID and other data."""

from __future__ import annotations

from statistics import fmean

from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.multi_round_fig3 import SCHEMES
from papers.running import Data, found, results

PAPER = {
    "Table 2, CIFAR-100": (
        (49.15, 50.06, 25.73, 42.89, 49.43, 50.22),
        (44.32, 47.11, 22.32, 39.57, 46.99, 47.06),
    ),
    "Table 3, CIFAR-10": (
        (64.64, 65.06, 55.70, 65.01, 64.95, 64.80),
        (45.20, 47.89, 37.74, 46.35, 47.00, 47.21),
    ),
    "Table 4, MNIST": (
        (98.21, 98.10, 93.94, 97.72, 98.11, 98.15),
        (85.79, 94.04, 75.26, 89.88, 92.51, 94.16),
    ),
}
"""Per cent, IID and non-IID, in the order of `SCHEMES`."""

DATA = (Data("mnist", {"learning.model": "mcmahan_cnn", "learning.batch_size": 100}),)
"""What the paper has, where it is there."""

SETTINGS = {"IID": "", "non-IID": "_1"}
"""Setting -> what the names of its entries end with."""


def run(place: Place) -> Evidence:
    """Final accuracies, means over the study's seeds, and the papers' statements about their order."""
    data = found(DATA)
    accuracies: dict[str, list[float]] = {}
    curves: dict[str, list[list[float | None]]] = {}
    for _, result in results(place.study(ENTRY.name), data):
        for name, entry in result.summary["protocols"].items():
            accuracies.setdefault(name, []).append(100 * entry["final_accuracy"])
            curves.setdefault(name, []).append([r["accuracy"] for r in entry["rounds"]])
    mean = {name: fmean(values) for name, values in accuracies.items()}
    cells = list(_tables(mean, accuracies))
    for setting, suffix in SETTINGS.items():
        cells += statements(setting, {name: mean[name + suffix] for name in SCHEMES})
    where = data.dataset if data else "the bundled digits"
    charts = [
        Chart(f"Accuracy on {where}, {setting}, first seed", "round", "test accuracy", tuple(
            _line(told, curves[name + suffix][0]) for name, told in SCHEMES.items()
        ))
        for setting, suffix in SETTINGS.items()
    ]  # fmt: skip
    return Evidence(tuple(cells), tuple(charts), data.told if data else "")


def _tables(mean: dict[str, float], accuracies: dict[str, list[float]]) -> list[Cell]:
    cells = []
    for table, settings in PAPER.items():
        for (setting, suffix), row in zip(SETTINGS.items(), settings, strict=True):
            for (name, told), printed in zip(SCHEMES.items(), row, strict=True):
                values = accuracies[name + suffix]
                spread = f"{min(values):.1f} to {max(values):.1f} over {len(values)} seeds"
                label = f"{table}, {setting}, {told}"
                cells.append(Cell(label, printed, mean[name + suffix], "%", "none", remark=spread))
    return cells


def statements(setting: str, mean: dict[str, float]) -> list[Cell]:
    """Judge what section 6 and App. E say of the order, scheme by scheme. mean: accuracy in per cent."""
    told = [("partition worst", mean["partition"] == min(mean.values()))]
    for T in (6, 4, 3):
        batches = mean[f"batches_{T}"]
        if setting == "IID":
            told.append((f"T = {T} comparable to random", batches >= 0.97 * mean["random"]))
        else:
            told.append((f"T = {T} above random", batches > mean["random"]))
    if setting != "IID":
        near = abs(mean["batches_3"] / mean["weighted"] - 1) <= 0.03
        told.append(("T = 3 comparable to weighted random", near))
    cells = []
    for said, so in told:
        remark = "comparable: within 3 %" if "comparable" in said else ""
        ours = said if so else "otherwise"
        cells.append(Cell(f"{setting}, order", said, ours, compare="order", remark=remark))
    return cells


def _line(name: str, values: list[float | None]) -> Line:
    known = [(float(t), v) for t, v in enumerate(values, 1) if v is not None]
    return Line(name, tuple(t for t, _ in known), tuple(v for _, v in known))


ENTRY = Entry(
    name="multi_round_accuracy",
    paper="Multi-RoundSecAgg",
    where="Tables 2-4, Figs 5-7",
    title="Test accuracy of the six schemes",
    on="the bundled 8 x 8 digits and logistic regression, 120 rounds, one label per user as non-IID; the"
    " paper: CIFAR-100 with VGG11, CIFAR-10 with LeNet and MNIST with a CNN",
    how="Data, model and rounds differ, so accuracies are shown and not compared. The order that the text"
    " states is judged for each scheme.",
    disagreement="Batches of six lose accuracy here in both settings. So they do in the paper's own Table 2,"
    " against its text.",
    run=run,
)
