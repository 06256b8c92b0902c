"""From a study to its cells, every one of them checked before any is run."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from simfl.errors import BadInput, Problem, ScenarioError, refusal
from simfl.runs.build import build, make_clocks
from simfl.scenario.schema import Scenario
from simfl.scenario.study import load_study

T = TypeVar("T")
MAX_CELLS = 100_000  # more are taken for a slip
SHOWN_PROBLEMS = 10


@dataclass(frozen=True)
class Cell:
    """One run: a point of the grid (its number) under one seed."""

    point: int
    seed: int
    scenario: Scenario


@dataclass(frozen=True)
class Plan:
    """The cells of a study.

    Attributes:
        name: Name of the study.
        points: The values that vary, by dotted key, in the order of the file.
        cells: A cell for each point and seed.
    """

    name: str
    points: tuple[Mapping[str, Any], ...]
    cells: tuple[Cell, ...]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for point in self.points for key in point))

    def label(self, cell: Cell) -> str:
        """Return a cell in words: `population.users=25, dropout.rate=0.1, seed=3`."""
        return in_words({**self.points[cell.point], "seed": cell.seed})


def in_words(values: Mapping[str, Any]) -> str:
    """Return values by dotted key in words."""
    return ", ".join(f"{key}={plain(value)}" for key, value in values.items())


def plain(value: Any) -> str:
    """Return a value as a scenario has it, on one line."""
    return value if isinstance(value, str) else json.dumps(value)


def make_plan(source: str | Path | Mapping[str, Any]) -> Plan:
    """Return the cells of a study, points by seeds; ScenarioError if any of its scenarios is wrong."""
    study = load_study(source)
    many = len(study.cells) * prod(map(len, study.grid)) * len(study.seeds)
    if many > MAX_CELLS:
        raise refusal(study.file, None, f"{many} cells; at most {MAX_CELLS}")
    chosen = [(*cell, *axes) for cell in study.cells for axes in product(*study.grid)]
    points = tuple({s.key: s.value for s in settings} for settings in chosen)
    # No rule of a scenario depends on its seed, so that one is enough to check them all.
    scenarios = _of_each(points, lambda index: study.resolve(chosen[index], study.seeds[0]))
    cells = [
        Cell(number, seed, scenario.model_copy(update={"seed": seed}))
        for (number, scenario), seed in product(enumerate(scenarios), study.seeds)
    ]
    return Plan(study.name, points, tuple(cells))


def check(plan: Plan, cells: Iterable[Cell], watch: Callable[[int], None] = lambda done: None) -> None:
    """Build each point of these cells under its first seed; ScenarioError with all that data and files show.
    watch: called with the number of points that are done."""
    # Where training picks its way by a measurement, the cache folder keeps it: all cells go the same way.
    firsts = sorted({cell.point: cell.scenario for cell in reversed(list(cells))}.items())

    def make(index: int) -> None:
        try:
            make_clocks(build(firsts[index][1]))
        finally:
            watch(index + 1)

    _of_each([plan.points[number] for number, _ in firsts], make)


def _of_each(points: Sequence[Mapping[str, Any]], make: Callable[[int], T]) -> list[T]:
    """Return `make(index)` of each point; a problem is told once, with its points unless all have it."""
    made: list[T] = []
    found: dict[Problem, list[Mapping[str, Any]]] = {}
    for index, point in enumerate(points):
        try:
            made.append(make(index))
        except BadInput as error:
            single = (Problem("", None, "", str(error)),)
            for problem in error.problems if isinstance(error, ScenarioError) else single:
                found.setdefault(problem, []).append(point)
    problems = []
    for problem, having in found.items():
        more = f" and {len(having) - 1} more" if len(having) > 1 else ""
        where = f" (at {in_words(having[0])}{more})" if len(having) < len(points) else ""
        problems.append(replace(problem, message=problem.message + where))
    if (rest := len(problems) - SHOWN_PROBLEMS) > 0:
        problems[SHOWN_PROBLEMS:] = [Problem("", None, "", f"... and {rest} more problems")]
    if problems:
        raise ScenarioError(problems)
    return made
