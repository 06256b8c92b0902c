"""The drop-out explorer: tries loss patterns of a small cohort and holds every law to each.

All patterns of a small cohort, or random ones of a larger. Patterns with fewer unlucky users come first,
and random ones are shrunk by hypothesis, so that a pattern that breaks a law is a smallest one; it becomes
a scenario that `simfl run` replays, and is replayed at once on the engine under the same laws.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from typing import Any

from joblib import Parallel, delayed

from simfl.errors import RunFailed
from simfl.protocols.protocol import Mode
from simfl.protocols.registry import PROTOCOLS
from simfl.studies.explore.buffered import BufferCohort, buffer_scenario
from simfl.studies.explore.cohort import Cohort, cohort_scenario
from simfl.studies.explore.patterns import Detect, Pattern, count, describe, every

AnyCohort = Cohort | BufferCohort

CHUNK_PATTERNS = 128
"""Patterns that a worker takes at a time."""


@dataclass(frozen=True)
class Violation:
    """A pattern that breaks laws."""

    detect: Detect
    pattern: Pattern
    laws: tuple[str, ...]

    def __str__(self) -> str:
        return f"{describe(self.pattern)} ({self.detect}): {'; '.join(self.laws)}"


@dataclass
class Report:
    """The counts of an exploration, and the first pattern that breaks laws."""

    patterns: int = 0
    completed: int = 0
    aborted: int = 0
    violation: Violation | None = None

    def add(self, other: Report) -> None:
        """Take a part's counts, and its violation if there is none yet."""
        self.patterns += other.patterns
        self.completed += other.completed
        self.aborted += other.aborted
        self.violation = self.violation or other.violation


def make_cohort(
    protocol: str, users: int, seed: int = 0, overrides: Mapping[str, Any] | None = None
) -> AnyCohort:
    """Return the cohort of a protocol, or of one in a file, `path.py:Name`; ValueError if there is none, or
    if an override does not fit."""
    kind = PROTOCOLS.find(protocol)
    name, spec = protocol, dict[str, Any]()
    if ":" in protocol:
        name, spec = kind.__name__, {"module": os.path.abspath(protocol)}
    if kind.mode is Mode.BUFFERED:
        spec |= kind.small(users, 1)
        return BufferCohort(buffer_scenario(name, spec, users, seed, overrides or {}), name)
    spec |= kind.small(users, (users - 1) // 2)
    return Cohort(cohort_scenario(name, spec, users, seed, overrides or {}), name)


def judge(cohort: AnyCohort, pattern: Pattern, detect: Detect) -> tuple[bool, tuple[str, ...]]:
    """Return whether all that was begun was completed, and the laws that do not hold."""
    try:
        return cohort.judge(pattern, detect)
    except Exception as error:  # a machine that fails is what the explorer is looking for
        return False, (_failure(error),)


def reproduced(cohort: AnyCohort, violation: Violation) -> tuple[str, ...]:
    """Return the laws that do not hold when the engine replays a violation's scenario."""
    try:
        return cohort.replayed(violation.pattern, violation.detect)
    except Exception as error:
        return (_failure(error),)


def _failure(error: Exception) -> str:
    return (
        f"a machine failed: {error if isinstance(error, RunFailed) else f'{type(error).__name__}: {error}'}"
    )


def total(cohort: AnyCohort, unlucky: int | None = None) -> int:
    """Return the number of patterns that `explore` tries."""
    return sum(
        count(cohort.users, len(cohort.fates(detect)), lost)
        for lost in range(1 + (cohort.users if unlucky is None else unlucky))
        for detect in cohort.detects
    )


def explore(
    cohort: AnyCohort,
    watch: Callable[[Report], None] | None = None,
    jobs: int = 1,
    unlucky: int | None = None,
) -> Report:
    """Try every pattern until one breaks a law: first nobody is lost, then one user, then two, ...

    watch: called with the counts so far, every few patterns; unlucky: the most users that meet a fate.
    """
    report = Report()
    most = cohort.users if unlucky is None else unlucky
    tasks = (delayed(attempt)(cohort, detect, chunk) for detect, chunk in _chunks(cohort, most))
    # Ctrl-C reaches every process of a terminal: the parent alone says where the search was.
    how = {"initializer": partial(signal.signal, signal.SIGINT, signal.SIG_IGN)} if jobs > 1 else {}
    with Parallel(n_jobs=jobs, return_as="generator", pre_dispatch="2*n_jobs", **how) as parallel:
        for part in parallel(tasks):
            report.add(part)
            if watch is not None:
                watch(report)
            if report.violation is not None:
                break
    return report


def _chunks(cohort: AnyCohort, most: int) -> Iterator[tuple[Detect, tuple[Pattern, ...]]]:
    for unlucky, detect in product(range(most + 1), cohort.detects):
        patterns = every(cohort.users, cohort.fates(detect), unlucky)
        while chunk := tuple(islice(patterns, CHUNK_PATTERNS)):
            yield detect, chunk


def attempt(cohort: AnyCohort, detect: Detect, patterns: tuple[Pattern, ...]) -> Report:
    """Try some patterns, up to the first that breaks a law."""
    report = Report()
    for pattern in patterns:
        completed, found = judge(cohort, pattern, detect)
        report.patterns += 1
        report.completed += completed
        report.aborted += not completed
        if found:
            report.violation = Violation(detect, pattern, found)
            break
    return report


def sample(cohort: AnyCohort, examples: int, watch: Callable[[Report], None] | None = None) -> Report:
    """Try random patterns, drawn and shrunk by hypothesis."""
    from hypothesis import Phase, find, settings
    from hypothesis import strategies as st
    from hypothesis.errors import NoSuchExample

    report = Report()

    def breaks(case: tuple[Detect, Pattern]) -> bool:
        detect, pattern = case
        part = attempt(cohort, detect, (pattern,))
        report.add(part)
        if watch is not None:
            watch(report)
        return part.violation is not None

    def patterns(detect: Detect) -> Any:
        fate = st.none() | st.sampled_from(cohort.fates(detect))
        return st.tuples(st.just(detect), st.tuples(*[fate] * cohort.users))

    how = settings(
        max_examples=examples, deadline=None, database=None, derandomize=True,
        phases=(Phase.generate, Phase.shrink),
    )  # fmt: skip
    try:
        smallest = find(st.sampled_from(cohort.detects).flatmap(patterns), breaks, settings=how)
    except NoSuchExample:
        return report
    report.violation = attempt(cohort, smallest[0], (smallest[1],)).violation
    return report
