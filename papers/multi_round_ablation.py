"""Multi-RoundSecAgg's ablation (App. G of an earlier version, its Fig. 9): accuracy at other N and K."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from papers.entry import Cell, Chart, Entry, Evidence, Place
from papers.multi_round_accuracy import Scheme, best_rates, statements
from papers.multi_round_fig3 import SCHEMES
from papers.running import Kept, chosen, curve, label, summaries, told

FAILS, CHANCE = "partition fails to train", 10.0
"""Per cent of a model that says one label of ten."""


def setting(point: Mapping[str, Any]) -> str:
    """(N, K) of a point of the study, in words."""
    return "(240, 12)" if "population.users" in point else "(120, 24)"


def run(place: Place) -> Evidence:
    """Final accuracies, means over the study's seeds, and what the text says of them."""
    studies = chosen(place, {"cifar10": "multi_round_ablation_cifar10"}, ENTRY.name)
    cells, charts = list[Cell](), list[Chart]()
    for dataset, study in studies.items():
        found: dict[str, list[tuple[Mapping[str, Any], Kept]]] = {}
        for point, result in summaries(study, place):
            found.setdefault(setting(point), []).append((point, result))
        for size, runs in found.items():
            best = best_rates(iter(runs))
            cells += [replace(cell, label=label(dataset, cell.label)) for cell in judged(size, best)]
            lines = tuple(curve(scheme, best[name][1]) for name, scheme in SCHEMES.items())
            title = f"Accuracy on {dataset}, (N, K) = {size}, first seed"
            charts.append(Chart(title, "round", "test accuracy", lines))
    return Evidence(tuple(cells), tuple(charts), told(studies))


def judged(size: str, best: Mapping[str, Scheme]) -> list[Cell]:
    """The accuracies of one (N, K), and the statements."""
    mean = {name: fmean(best[name][0]) for name in SCHEMES}
    cells = [Cell(f"{size}, {scheme}", None, mean[name], "%", "none") for name, scheme in SCHEMES.items()]
    cells += [
        replace(cell, label=f"{size}, order")
        for cell in statements("IID", {name: best[name][0] for name in SCHEMES})
    ]
    if size == "(120, 24)":
        ours = FAILS if mean["partition"] <= CHANCE + 5 else "it trains"
        remark = f"fails: at most {CHANCE + 5:g} %, five more than one label of ten is right by itself"
        cells.append(Cell(f"{size}, partition", FAILS, ours, compare="order", remark=remark))
    return cells


ENTRY = Entry(
    name="multi_round_ablation",
    paper="Multi-RoundSecAgg",
    where="App. G of an earlier version (its Fig. 9, accuracy)",
    title="Test accuracy of the six schemes at (N, K) = (240, 12) and (120, 24), IID",
    on="the bundled digits, logistic regression, 120 rounds; the paper: CIFAR-10 with LeNet",
    how="The paper prints curves without numbers; its text's statements are judged, scheme by scheme:"
    " comparable to random and to weighted random, partition worst. The"
    " figure's T are in a legend that the text does not repeat: those of section 6 are taken. A seed"
    " without a completed round counts as 0 %.",
    run=run,
    disagreement="With K = 24 of 120 users, T = 6 needs four whole batches of twenty and seldom finds them,"
    " and T = 4 not always six of thirty: their C are among those of the entry on different p_i. Whether the"
    " paper's figure has these T is not in the text.",
)
