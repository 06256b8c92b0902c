"""What laws judge: one protocol's run, and the world of its scenario."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from simfl.runs.build import Experiment
from simfl.runs.results import metrics
from simfl.runs.users import UserPopulation
from simfl.scenario.schema import Scenario
from simfl.trace.rows import End, Trace

NS = 10**9
R = TypeVar("R")


class Broken(Exception):
    """A law that a run does not keep."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


@dataclass
class Run:
    """One protocol's run: its rows, what is reported of it, and its scenario, loaded again."""

    scenario: Scenario
    name: str
    rows: Trace
    rounds: list[metrics.Round]
    summary: dict[str, Any]
    built: Experiment

    def of(self, kind: type[R]) -> list[R]:
        """The rows of a kind, in order."""
        return [row for row in self.rows if isinstance(row, kind)]

    @property
    def people(self) -> UserPopulation:
        """The users."""
        return self.built.people

    @cached_property
    def ends(self) -> list[End]:
        """The ends of rounds."""
        return self.of(End)

    @cached_property
    def buffered(self) -> bool:
        """Whether aggregations overlap."""
        return self.scenario.buffer is not None
