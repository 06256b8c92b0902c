"""LightSecAgg Figs 7 and 11: asynchronous LightSecAgg learns as FedBuff does."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from statistics import fmean

from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.running import FASHION, chosen, curve, label, summaries, told
from simfl.runs.results.statistics import estimate

PAIRS = {
    "constant": ("fedbuff", "lightsecagg_async"),
    "polynomial": ("fedbuff_poly", "lightsecagg_async_poly"),
}
"""Staleness weights -> the entries of the study that are compared."""
STUDIES = {
    "mnist": "lightsecagg_fig11_mnist",
    "cifar10": "lightsecagg_fig11_cifar10",
    FASHION: "lightsecagg_fig11_fashion_mnist",
}
"""The paper's data sets, and the one in their place -> the studies of its setting."""
SAME = 0.01
"""Accuracies whose difference is surely no larger are almost the same."""


def run(place: Place) -> Evidence:
    """Final accuracies over the study's seeds, and the first seed's curves."""
    studies = chosen(place, STUDIES, ENTRY.name)
    out, charts = list[Cell](), list[Chart]()
    for dataset, study in studies.items():
        finals: dict[str, list[float]] = {}
        lines: list[Line] = []
        for _, result in summaries(study, place):
            protocols = result.summary["protocols"]
            for name, entry in protocols.items():
                finals.setdefault(name, []).append(entry["final_accuracy"])
            if not lines:
                lines = [curve(name, entry["rounds"]) for name, entry in protocols.items()]
        title = f"Accuracy on {dataset}, first seed"
        charts.append(Chart(title, "aggregation", "test accuracy", tuple(lines)))
        out += [replace(cell, label=label(dataset, cell.label)) for cell in cells(finals)]
    return Evidence(tuple(out), tuple(charts), told(studies, ON))


def cells(finals: dict[str, list[float]]) -> list[Cell]:
    """Entry -> its final accuracy under each seed."""
    out = []
    for staleness, (plain, secure) in PAIRS.items():
        by = estimate([a - b for a, b in zip(finals[secure], finals[plain], strict=True)])
        half = inf if by.half is None else by.half
        statement = "almost the same as FedBuff"
        word = "undecided" if abs(by.mean) - half <= SAME else "another"
        word = statement if abs(by.mean) + half <= SAME else word
        remark = f"{fmean(finals[secure]):.4f} and {fmean(finals[plain]):.4f}"
        remark += f": {by.mean:+.4f} ± {half:.4f}, {by.n} seeds"
        out.append(Cell(f"staleness {staleness}", statement, word, compare="order", remark=remark))
    return out


ON = (
    "Fashion-MNIST in the place of MNIST, with the paper's N = 100, K = 10, staleness uniform on 0 .. 10,"
    " c_l = 2^16 and c_g = 2^6, but a softmax regression in the place of LeNet, 30 aggregations (the paper"
    " does not number its own) and three seeds. CIFAR-10 cannot be installed as a package, and nothing"
    " was put in its place"
)

ENTRY = Entry(
    name="lightsecagg_fig11",
    paper="LightSecAgg",
    where="Figs 7 and 11",
    title="Accuracy of asynchronous LightSecAgg and FedBuff",
    on="the bundled digits and logistic regression, 40 aggregations, staleness drawn from 0 .. 10; the paper:"
    " MNIST with LeNet and CIFAR-10 with a CNN",
    how="The paper prints curves without numbers. Its statement is judged by final accuracies: almost the"
    " same means that the 95 % interval of their difference, seed by seed, lies within 0.01 of zero.",
    disagreement="The models that users get are drawn 0 to 10 versions old for both, but a user of"
    " LightSecAgg is one version more behind. A place is free as an upload comes, so the next users begin"
    " while the server recovers the sum, and that aggregation is one more. FedBuff aggregates as the last"
    " upload comes. Without drawn ages its staleness is zero, LightSecAgg's one in all but the first"
    " aggregation. The paper draws the whole staleness, for both.",
    run=run,
)
