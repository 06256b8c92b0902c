"""A table's study, run cell by cell, on the paper's data, on those in their place, or on the bundled digits.

Cells of a study are kept in a folder if the place has one, each as soon as it is done, so that evidence that
was stopped goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers.entry import Line, Place
from simfl.errors import RunFailed
from simfl.learning.data import DATASETS
from simfl.learning.data.published import ROOT_VARIABLE
from simfl.runs.folder.result import Result
from simfl.runs.simulation import run
from simfl.studies.sweep.plan import check, make_plan
from simfl.studies.sweep.run import Sweep
from simfl.studies.sweep.store import Store

BUNDLED = "the bundled digits"
FASHION = "fashion_mnist"
"""What stands in the place of MNIST and CIFAR-10, which cannot be installed as packages."""


def has(dataset: str) -> bool:
    """Whether SIMFL_DATA has a folder of this name, or a package of the system has the data."""
    root = os.environ.get(ROOT_VARIABLE)
    if root and (Path(root).expanduser() / dataset).is_dir():
        return True
    return getattr(DATASETS[dataset](), "installed", None) is not None


def chosen(place: Place, theirs: Mapping[str, str], ours: str) -> dict[str, Path]:
    """Data set -> its study: of `theirs` those whose data are here, else ours on the bundled digits.

    Fashion-MNIST, which is no paper's, is left out where a data set of the paper is here.

    theirs: data set -> the name of the study that has the paper's model, partition and rates for it.
    """
    here = {dataset: place.study(name) for dataset, name in theirs.items() if has(dataset)}
    if len(here) > 1:
        here.pop(FASHION, None)
    return here or {BUNDLED: place.study(ours)}


def told(studies: Mapping[str, Path], instead: str = "") -> str:
    """Return the data of a run in words, or "" for the bundled digits.

    instead: what a run on Fashion-MNIST is, in words.
    """
    if BUNDLED in studies:
        return ""
    if FASHION in studies:
        return instead
    named = ", ".join(study.stem for study in studies.values())
    return f"{' and '.join(studies)} from a local folder, in the paper's setting ({named})"


def label(dataset: str, text: str) -> str:
    """A cell's label, with the data set that it is of unless that is the bundled one."""
    return text if dataset == BUNDLED else f"{dataset}: {text}"


def curve(name: str, rounds: list[dict[str, Any]]) -> Line:
    """An entry's accuracy, of the rounds that have one."""
    known = [
        (float(number), r["accuracy"]) for number, r in enumerate(rounds, 1) if r["accuracy"] is not None
    ]
    return Line(name, tuple(x for x, _ in known), tuple(y for _, y in known))


@dataclass(frozen=True)
class Kept:
    """A cell that is done: its summary, as a run's result has it."""

    summary: dict[str, Any]


def results(study: Path) -> Iterator[tuple[Mapping[str, Any], Result]]:
    """Each cell of a study: what varies by dotted key, with the result; its scenario has the seed.

    Raises:
        ScenarioError: the study, or any of its scenarios, is wrong; nothing was run then.
    """
    plan = make_plan(study)
    check(plan, plan.cells)
    for cell in plan.cells:
        yield plan.points[cell.point], run(cell.scenario)


def summaries(study: Path, place: Place) -> Iterator[tuple[Mapping[str, Any], Kept]]:
    """Each cell of a study as `results`, but kept as soon as it is done where the place keeps cells.

    Raises:
        ScenarioError: as for `results`.
        RunFailed: a cell that is to be kept failed; the others are kept.
    """
    if place.kept is None:
        yield from ((point, Kept(result.summary)) for point, result in results(study))
        return
    plan = make_plan(study)
    check(plan, plan.cells)
    sweep = Sweep(plan, Store(place.kept / study.stem))
    with sweep.store.locked():
        sweep.perform(sweep.missing(print), min(place.jobs, sweep.at_once))
    for cell, failed in sweep.failures.values():
        raise RunFailed(f"{study.stem}, {plan.label(cell)}: {failed.reason}")
    for key, cell in zip(sweep.keys, plan.cells, strict=True):
        text = (sweep.store.cells / key / "summary.json").read_text(encoding="utf-8")
        yield plan.points[cell.point], Kept(json.loads(text))
