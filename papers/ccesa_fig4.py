"""CCESA Fig. 4: rounds that are not reliable cost accuracy, and at p* there are hardly any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.running import chosen, label, results, told

STUDIES = {"cifar10": "ccesa_fig4_cifar10"}
"""The paper's data set -> the study of its setting."""
SAME = 0.02
"""Accuracies that differ by no more are the same."""
NAMES = {
    "secagg": "SA",
    "ccesa": "CCESA, p*",
    "ccesa_08": "CCESA, 0.8 p*",
    "ccesa_07": "CCESA, 0.7 p*",
    "ccesa_06": "CCESA, 0.6 p*",
}


def run(place: Place) -> Evidence:
    """Accuracies round by round, on IID data and with two shards a client."""
    studies = chosen(place, STUDIES, ENTRY.name)
    out, charts = list[Cell](), list[Chart]()
    for dataset, study in studies.items():
        for point, result in results(study):
            setting = "IID" if point["learning.partition"] == "iid" else "two shards a client"
            protocols: dict[str, Any] = result.summary["protocols"]
            out += [replace(cell, label=label(dataset, cell.label)) for cell in cells(setting, protocols)]
            lines = tuple(_line(scheme, protocols[name]["rounds"]) for name, scheme in NAMES.items())
            charts.append(Chart(f"Accuracy on {dataset}, {setting}", "round", "test accuracy", lines))
    return Evidence(tuple(out), tuple(charts), told(studies))


def cells(setting: str, protocols: dict[str, Any]) -> list[Cell]:
    """CCESA beside SA at p* and at 0.8 p*, as the text has it; the others as they are."""
    out, sa = [], protocols["secagg"]["final_accuracy"]
    for name, scheme in NAMES.items():
        entry = protocols[name]
        done = sum(r["status"] == "completed" for r in entry["rounds"])
        completed = f"{done} of {len(entry['rounds'])} rounds completed"
        remark = f"accuracy {entry['final_accuracy'] or 0:.3f}, {completed}"
        if name in ("ccesa", "ccesa_08"):
            said = "the accuracy of SA"
            ours = (
                said if entry["final_accuracy"] and entry["final_accuracy"] >= sa - SAME else "less than SA"
            )
            out.append(Cell(f"{setting}: {scheme}", said, ours, compare="order", remark=remark))
        else:
            out.append(Cell(f"{setting}: {scheme}", None, entry["final_accuracy"], "", "none", remark=remark))
    return out


def _line(name: str, rounds: list[dict[str, Any]]) -> Line:
    """An aborted round leaves the accuracy as it was; before the first completed one there is none."""
    x, y = list[float](), list[float]()
    for number, r in enumerate(rounds, 1):
        if r["accuracy"] is not None:
            y.append(r["accuracy"])
        elif y:
            y.append(y[-1])
        else:
            continue
        x.append(float(number))
    return Line(name, tuple(x), tuple(y))


ENTRY = Entry(
    name="ccesa_fig4",
    paper="CCESA",
    where="Fig. 4",
    title="Accuracy of SA and of CCESA(n, p)",
    on="the bundled digits, logistic regression, n = 100, 20 rounds; the paper: CIFAR-10, VGG-11, n = 1000,"
    " 200 rounds",
    how="The paper prints curves without numbers. It states that p* has the accuracy of SA, and so has p ="
    " 0.25, which is 0.8 p* at n = 1000. Two accuracies count as the same within 0.02.",
    run=run,
    disagreement="At n = 100, degrees vary more than at n = 1000, and fewer rounds are reliable at 0.8 p*.",
)
