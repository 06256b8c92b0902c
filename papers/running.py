"""A table's study, run cell by cell in this process, on the paper's data where they are there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simfl.folder.result import Result
from simfl.learning.data.published import ROOT_VARIABLE
from simfl.simulation import run
from simfl.studies.sweep.plan import check, make_plan


@dataclass(frozen=True)
class Data:
    """A data set that the paper used and that cannot be shipped, with what a study is to set for it."""

    dataset: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def overrides(self) -> dict[str, Any]:
        """Values by dotted key."""
        return {"learning.dataset": self.dataset, **self.settings}

    @property
    def told(self) -> str:
        """What was run on, in words."""
        values = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        return f"{self.dataset} from a local folder, with {values}" if values else self.dataset


def found(data: Sequence[Data]) -> Data | None:
    """The first of the data sets that has a folder of its name in SIMFL_DATA; None without."""
    root = os.environ.get(ROOT_VARIABLE)
    if not root:
        return None
    return next((d for d in data if (Path(root).expanduser() / d.dataset).is_dir()), None)


def results(study: Path, data: Data | None = None) -> Iterator[tuple[Mapping[str, Any], Result]]:
    """Each cell of a study: what varies by dotted key, with the result; its scenario has the seed.

    Raises:
        ScenarioError: the study, or any of its scenarios, is wrong; nothing was run then.
    """
    plan = make_plan(study)
    check(plan, plan.cells)
    for cell in plan.cells:
        yield plan.points[cell.point], run(cell.scenario, data.overrides if data else None)
