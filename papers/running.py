"""A table's study, run cell by cell in this process, on the paper's data where they are there."""

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
    """Whether SIMFL_DATA has a folder of this name."""
    root = os.environ.get(ROOT_VARIABLE)
    return bool(root and (Path(root).expanduser() / dataset).is_dir())


def chosen(place: Place, theirs: Mapping[str, str], ours: str) -> dict[str, Path]:
    """Data set -> its study: of the paper's those that SIMFL_DATA has, else ours on the bundled digits.

    theirs: data set -> the name of the study that has the paper's model, partition, rates and rounds for it.
    """
    return {dataset: place.study(name) for dataset, name in theirs.items() if has(dataset)} or {
        BUNDLED: place.study(ours)
    }


def told(studies: Mapping[str, Path]) -> str:
    """What was run on, in words; nothing where that was the bundled digits."""
    if BUNDLED in studies:
        return ""
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


def results(study: Path) -> Iterator[tuple[Mapping[str, Any], Result]]:
    """Each cell of a study: what varies by dotted key, with the result; its scenario has the seed.

    Raises:
        ScenarioError: the study, or any of its scenarios, is wrong; nothing was run then.
    """
    plan = make_plan(study)
    check(plan, plan.cells)
    for cell in plan.cells:
        yield plan.points[cell.point], run(cell.scenario)
