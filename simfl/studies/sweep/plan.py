"""From a study to its cells, every one of them checked before any is run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from simfl.errors import BadInput, Problem, ScenarioError, refusal
from simfl.experiment.build import build, make_clocks
from simfl.scenario.schema import Scenario
from simfl.scenario.study import Settings, Study, load_study

MOST = 100_000
"""Cells of a study: more are taken for a slip."""

TOLD = 10
"""Problems that are told at once."""


@dataclass(frozen=True)
class Cell:
    """One run: a point of the grid (its number) under one seed."""

    point: int
    seed: int
    scenario: Scenario


@dataclass(frozen=True)
class Plan:
    """What a study comes to: `points` are the values that vary, by dotted key, in the order of the file."""

    name: str
    points: tuple[Mapping[str, Any], ...]
    cells: tuple[Cell, ...]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Every key that varies."""
        return tuple(dict.fromkeys(key for point in self.points for key in point))

    def label(self, cell: Cell) -> str:
        """A cell in words: `population.users=25, dropout.rate=0.1, seed=3`."""
        return told({**self.points[cell.point], "seed": cell.seed})


def told(values: Mapping[str, Any]) -> str:
    """Values by dotted key in words."""
    return ", ".join(f"{key}={written(value)}" for key, value in values.items())


def written(value: Any) -> str:
    """A value as it is written in a scenario, on one line."""
    return value if isinstance(value, str) else json.dumps(value)


def make_plan(path: Path) -> Plan:
    """The cells of a study's file, points by seeds.

    Raises:
        ScenarioError: the study or any of its scenarios is wrong.
    """
    study = load_study(path)
    many = len(study.cells) * prod(map(len, study.grid)) * len(study.seeds)
    if many > MOST:
        raise refusal(study.file, None, f"{many} cells; at most {MOST}")
    chosen = [(*cell, *axes) for cell in study.cells for axes in product(*study.grid)]
    points = tuple({s.key: s.value for s in settings} for settings in chosen)
    scenarios = _resolved(study, chosen, points)
    cells = tuple(
        Cell(number, seed, scenario.model_copy(update={"seed": seed}))
        for number, scenario in enumerate(scenarios)
        for seed in study.seeds
    )
    return Plan(study.name, points, cells)


def check(plan: Plan, cells: Iterable[Cell], watch: Callable[[int], None] | None = None) -> None:
    """Build each point that these cells belong to, under its first seed, for what needs data or files.

    Where real training picks its way by a measurement, that is done here and remembered in the cache folder,
    so that all cells go the same way. watch: told how many points are done.

    Raises:
        ScenarioError: a scenario cannot be built.
    """
    found: list[tuple[Mapping[str, Any], BadInput]] = []
    firsts = {cell.point: cell for cell in reversed(list(cells))}
    for done, number in enumerate(sorted(firsts), 1):
        scenario = firsts[number].scenario
        try:
            make_clocks(build(scenario))
        except BadInput as error:
            found.append((plan.points[number], error))
        if watch is not None:
            watch(done)
    if found:
        raise _gathered(found, len(firsts))


def _resolved(
    study: Study, chosen: Iterable[Settings], points: tuple[Mapping[str, Any], ...]
) -> list[Scenario]:
    """The scenario of each point under the first seed, which no rule of a scenario depends on."""
    scenarios: list[Scenario] = []
    found: list[tuple[Mapping[str, Any], BadInput]] = []
    for settings, point in zip(chosen, points, strict=True):
        try:
            scenarios.append(study.resolve(settings, study.seeds[0]))
        except ScenarioError as error:
            found.append((point, error))
    if found:
        raise _gathered(found, len(points))
    return scenarios


def _gathered(found: list[tuple[Mapping[str, Any], BadInput]], many: int) -> ScenarioError:
    """The problems of many points, each once, with the points that have it unless all have."""
    where: dict[Problem, list[Mapping[str, Any]]] = {}
    for point, error in found:
        listed = error.problems if isinstance(error, ScenarioError) else (Problem("", None, "", str(error)),)
        for problem in listed:
            where.setdefault(problem, []).append(point)
    problems = []
    for problem, points in where.items():
        more = f" and {len(points) - 1} more" if len(points) > 1 else ""
        there = f" (at {told(points[0])}{more})" if len(points) < many else ""
        problems.append(replace(problem, message=problem.message + there))
    if len(problems) > TOLD:
        problems[TOLD:] = [Problem("", None, "", f"... and {len(problems) - TOLD} more problems")]
    return ScenarioError(problems)
