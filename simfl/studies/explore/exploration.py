"""Explore a protocol: lose its users at every combination of points, and hold every law to each round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simfl.errors import need
from simfl.runs.simulation import refuse_in_a_loop
from simfl.scenario.load import resolved_yaml
from simfl.studies.explore import effort, rounds
from simfl.studies.explore.reached import Tried, tried
from simfl.studies.explore.rounds import AnyCohort, Report, Violation, judge, make_cohort, sample, total
from simfl.studies.sweep.backends import check_jobs


@dataclass(repr=False)
class Exploration:
    """An exploration of a protocol's cohort, with what was counted so far.

    Attributes:
        cohort: the protocol's users and their scenario.
        random: the number of random patterns; None if all of them are tried.
        report: the counts, and the smallest pattern that breaks a law.
        replayed: the laws that this pattern breaks when it is replayed on the engine.
    """

    cohort: AnyCohort
    random: int | None = None
    report: Report = field(default_factory=Report)
    replayed: tuple[str, ...] = ()

    def __repr__(self) -> str:
        outcome = "every law held" if self.violation is None else str(self.violation)
        return f"Exploration({self.cohort.protocol}, {self.report.patterns} patterns, {outcome})"

    @property
    def patterns(self) -> int:
        """The number of patterns to try."""
        return total(self.cohort) if self.random is None else self.random

    @property
    def violation(self) -> Violation | None:
        """The smallest pattern that breaks a law; None if every law held."""
        return self.report.violation

    @property
    def rows(self) -> list[Tried]:
        """The laws that were tried, and the parts of the machines that patterns reached or did not."""
        listed = [*self.cohort.laws, *tried(self.report.reached, self.cohort.rows)]
        if self.random is not None:
            patterns = f"the rest of {total(self.cohort):,} patterns"
            listed.append(Tried(patterns, because=f"--random {self.random} tries so many"))
        return listed

    def scenario_text(self) -> str:
        """Return the scenario of `violation` as YAML, with the broken laws above it."""
        assert self.violation is not None
        scenario = self.cohort.replayable(self.violation.pattern, self.violation.detect)
        return "".join(f"# {law}\n" for law in self.violation.laws) + resolved_yaml(scenario)

    def seconds(self, jobs: int) -> float:
        """Return about how many seconds all patterns take here; 0 for random ones, and for a few."""
        is_short = self.random is not None or self.patterns <= effort.FEW_PATTERNS
        return 0.0 if is_short else effort.seconds_for_all(self.cohort, jobs)

    def run(self, jobs: int, watch: Callable[[Report], None]) -> None:
        """Try the patterns until one breaks a law.

        Args:
            watch: Called with the counts, every few patterns.
        """

        def count(report: Report) -> None:
            self.report = report
            watch(report)

        if self.random is None:
            self.report = rounds.explore(self.cohort, count, jobs)
        else:
            self.report = sample(self.cohort, self.random, count)
        if (broken := self.violation) is not None:
            _, self.replayed = judge(self.cohort, broken.pattern, broken.detect, replay=True)


def explore(
    protocol: str,
    users: int = 4,
    random: int | None = None,
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
    jobs: int = 1,
    watch: Callable[[Report], None] | None = None,
) -> Exploration:
    """Lose users at every combination of points, and hold every law to each round.

    Args:
        protocol: one of ours, or `path.py:Name`.
        users: the size of the cohort, at least 3; beyond 6 give `random`.
        random: the number of random patterns to try instead of all.
        seed: for keys, updates and random graphs.
        overrides: values of the cohort's scenario by dotted key.
        jobs: processes that try patterns side by side.
        watch: called with the counts, every few patterns.

    Returns:
        The exploration: `violation`, the smallest pattern that breaks a law, None if every law held;
        `scenario_text()`, its scenario; `report` with the counts; `rows`, what was tried and what was not.

    Raises:
        RuntimeError: an event loop runs, as in a notebook.
        BadInput: an argument is bad, or `random` is given and hypothesis is not installed.

    >>> import simfl
    >>> simfl.explore("fedavg", users=3)
    Exploration(fedavg, 54 patterns, every law held)
    """
    refuse_in_a_loop("explore")
    exploration = open_exploration(protocol, users, random, seed, overrides, jobs)
    exploration.run(jobs, watch or (lambda report: None))
    return exploration


def open_exploration(
    protocol: str, users: int, random: int | None, seed: int, overrides: Mapping[str, Any] | None, jobs: int
) -> Exploration:
    """Return an exploration before its first pattern; arguments as of `explore`."""
    if random is not None:
        need("random", "hypothesis", "explore")
    check_jobs(jobs)
    return Exploration(make_cohort(protocol, users, seed, overrides), random)
