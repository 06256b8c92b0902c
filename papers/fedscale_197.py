"""FedScale's pull request 197: seconds of synchronous rounds and of FedBuff until an accuracy is reached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.running import summaries
from simfl.runs.results.statistics import estimate

PRINTED = {"fedavg": (100, 27_618, 0.914), "fedbuff": (180, 18_913, 0.92)}
"""Protocol -> rounds, seconds and top-5 accuracy that the pull request prints."""
NAMES = {"fedavg": "synchronous", "fedbuff": "FedBuff"}
SOONER, MORE = "FedBuff is there sooner", "FedBuff needs more rounds"


def run(place: Place) -> Evidence:
    """Rounds and seconds to the study's target, seed by seed, and their ratios."""
    runs: dict[str, list[Mapping[str, Any]]] = {name: [] for name in NAMES}
    for _, result in summaries(place.study(ENTRY.name), place):
        for name, protocol in result.summary["protocols"].items():
            runs[name].append(protocol)
    lines = tuple(_line(NAMES[name], found[0]["rounds"]) for name, found in runs.items())
    chart = Chart("Accuracy against time, first seed", "virtual time, s", "test accuracy", lines)
    return Evidence(tuple(cells(runs)), (chart,))


def cells(runs: Mapping[str, list[Mapping[str, Any]]]) -> Iterable[Cell]:
    """Values beside the printed ones, which are of other data; the order of both is judged."""
    numbers: dict[str, list[tuple[float, float]]] = {}
    for name, words in NAMES.items():
        rounds, seconds, accuracy = PRINTED[name]
        reached = [protocol["targets"]["accuracy"]["reached"] for protocol in runs[name]]
        found = numbers[name] = [(r["rounds"], r["after_s"]) for r in reached if r]
        if len(found) < len(reached):
            yield Cell(
                f"{words}: target", "reached", f"{len(found)} of {len(reached)} seeds", compare="order"
            )
            return
        remark = f"the paper's at a top-5 accuracy of {accuracy}"
        yield Cell(f"{words}: rounds to it", rounds, fmean(r for r, _ in found), "", "none", remark=remark)
        yield Cell(f"{words}: seconds to it", seconds, fmean(s for _, s in found), "s", "none", remark=remark)
        each = fmean(_seconds(protocol["rounds"]) for protocol in runs[name])
        yield Cell(f"{words}: a round", seconds / rounds, each, "s", "none")
    for column, (what, order) in enumerate((("rounds", MORE), ("seconds", SOONER))):
        pairs = list(zip(numbers["fedavg"], numbers["fedbuff"], strict=True))
        ratios = [plain[column] / buffered[column] for plain, buffered in pairs]
        by = estimate(ratios)
        printed = PRINTED["fedavg"][column] / PRINTED["fedbuff"][column]
        label = f"{what} to it, synchronous / FedBuff"
        yield Cell(label, printed, by.mean, "", "none", remark=f"{by.text()}")
        off, half = by.mean - 1, by.half or 0.0
        so = off + half < 0 if order == MORE else off - half > 0
        ours = order if so else "undecided" if abs(off) <= half else "otherwise"
        yield Cell(what, order, ours, compare="order")


def _seconds(rounds: list[dict[str, Any]]) -> float:
    return float(rounds[-1]["end_s"]) / len(rounds)


def _line(name: str, rounds: list[dict[str, Any]]) -> Line:
    known = [r for r in rounds if r["accuracy"] is not None]
    return Line(name, tuple(r["end_s"] for r in known), tuple(r["accuracy"] for r in known))


ENTRY = Entry(
    name="fedscale_197",
    paper="FedScale",
    where="pull request 197",
    title="Synchronous rounds of five and FedBuff with ten at work, time to an accuracy",
    on="Fashion-MNIST and softmax regression, 2,800 users of two classes, to a top-1 accuracy of 0.7; the"
    " pull request: FEMNIST, ResNet-18, top-5 accuracies of 0.914 and 0.92",
    how="Printed numbers stand beside ours and are not judged, since data, model and measure of accuracy"
    " differ, and times of devices are not FedScale's traces. Judged is the order: FedBuff needs more rounds"
    " and less time. It holds if the 95 % interval of the ratio, seed by seed, lies on that side of one.",
    run=run,
    disagreement="A synchronous round waits for the slowest of five. How much longer that is than a buffer of"
    " five takes depends on the spread of devices and links, which is fitted to FedScale's medians only.",
)
