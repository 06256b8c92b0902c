"""Runs of a table's study, cell by cell in this process, on the paper's data if they are installed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from papers.entry import Line, Place
from simfl.learning.data.published import ROOT_VARIABLE
from simfl.runs.folder.result import Result
from simfl.runs.simulation import run
from simfl.studies.sweep.plan import check, make_plan

BUNDLED = "the bundled digits"


def has(dataset: str) -> bool:
    """Return True if SIMFL_DATA has a folder of this name."""
    root = os.environ.get(ROOT_VARIABLE)
    return bool(root and (Path(root).expanduser() / dataset).is_dir())


def chosen(place: Place, theirs: Mapping[str, str], ours: str) -> dict[str, Path]:
    """Return the studies to run by data set: the paper's data sets in SIMFL_DATA, else the bundled digits.

    Args:
        place: The folders.
        theirs: By data set, the study with the paper's model, partition, rates and rounds.
        ours: The study on the bundled digits.
    """
    return {dataset: place.study(name) for dataset, name in theirs.items() if has(dataset)} or {
        BUNDLED: place.study(ours)
    }


def data_in_words(studies: Mapping[str, Path]) -> str:
    """Return the data of a run in words; empty for the bundled digits."""
    if BUNDLED in studies:
        return ""
    named = ", ".join(study.stem for study in studies.values())
    return f"{' and '.join(studies)} from a local folder, in the paper's setting ({named})"


def label(dataset: str, text: str) -> str:
    """Return a cell's label, with its data set unless that is the bundled one."""
    return text if dataset == BUNDLED else f"{dataset}: {text}"


def curve(name: str, rounds: list[dict[str, Any]]) -> Line:
    """Return an entry's accuracy as a line over the rounds that have one."""
    points = [
        (float(number), r["accuracy"]) for number, r in enumerate(rounds, 1) if r["accuracy"] is not None
    ]
    return Line(name, tuple(x for x, _ in points), tuple(y for _, y in points))


def results(study: Path) -> Iterator[tuple[Mapping[str, Any], Result]]:
    """Run each cell of a study; yield its values by dotted key, and its result.

    Raises:
        ScenarioError: The study or one of its scenarios is wrong; no cell has run then.
    """
    plan = make_plan(study)
    check(plan, plan.cells)
    for cell in plan.cells:
        yield plan.points[cell.point], run(cell.scenario)
