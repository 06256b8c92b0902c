"""The drop-out explorer: holds every law to all patterns of a small cohort, or to random ones of a larger.

Patterns with fewer unlucky users come first, and random ones are shrunk by hypothesis, so that a pattern that
breaks a law is a smallest one; its scenario is replayed at once on the engine under the same laws.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, product
from math import comb
from typing import Any

from joblib import delayed

from simfl.errors import BadInput, RunFailed, did_you_mean
from simfl.protocols.protocol import Mode
from simfl.protocols.registry import PROTOCOLS
from simfl.scenario.load import load
from simfl.studies.explore.buffered import BufferCohort
from simfl.studies.explore.cohort import Detect, Pattern, RoundCohort, describe, every
from simfl.studies.explore.reached import Row
from simfl.studies.sweep.backends import workers

AnyCohort = RoundCohort | BufferCohort
CHUNK_PATTERNS = 128  # that a worker takes at a time


@dataclass(frozen=True)
class Violation:
    detect: Detect
    pattern: Pattern
    laws: tuple[str, ...]

    def __str__(self) -> str:
        return f"{describe(self.pattern)} ({self.detect}): {'; '.join(self.laws)}"


@dataclass
class Report:
    """The counts of an exploration, the first pattern that breaks laws, and what machines reached."""

    patterns: int = 0
    completed: int = 0
    aborted: int = 0
    violation: Violation | None = None
    reached: set[Row] = field(default_factory=set, compare=False)

    def add(self, other: Report) -> None:
        """Take a part's counts, and its violation unless there is one."""
        self.patterns += other.patterns
        self.completed += other.completed
        self.aborted += other.aborted
        self.violation = self.violation or other.violation
        self.reached |= other.reached


def make_cohort(
    protocol: str, users: int, seed: int = 0, overrides: Mapping[str, Any] | None = None
) -> AnyCohort:
    """Return the cohort of a protocol, ours or `path.py:Name`; BadInput for another, or an unfit override."""
    try:
        kind = PROTOCOLS.find(protocol)
    except BadInput as problem:
        raise BadInput(f"{problem}{did_you_mean(protocol, PROTOCOLS)}") from None
    name, spec = protocol, dict[str, Any]()
    if ":" in protocol:
        name, spec = kind.__name__, {"module": os.path.abspath(protocol)}
    buffered = kind.mode is Mode.BUFFERED
    cohort: type[AnyCohort] = BufferCohort if buffered else RoundCohort
    scenario = {
        "name": f"explore_{name}",
        "seed": seed,
        "clock": "modelled",
        "network": {
            "users": {"preset": "4g", "latency_s": cohort.latency_s},
            "server": {"uplink_mbps": 1000.0, "downlink_mbps": 1000.0},
            "overhead_s": 0.0002,
        },
        "detect": "timeout",
        "quantization": {"levels": 65536, "clip": 4.0},
        "protocols": {name: {**spec, **kind.small_settings(users, 1 if buffered else (users - 1) // 2)}},
    }
    return cohort(load({**scenario, **cohort.settings(users)}, overrides or {}), name)


def judge(
    cohort: AnyCohort, pattern: Pattern, detect: Detect, replay: bool = False
) -> tuple[bool, tuple[str, ...]]:
    """Return whether all that was begun was completed, and the broken laws; replay: on the engine."""
    try:
        return (cohort.replayed if replay else cohort.judge)(pattern, detect)
    except Exception as error:  # a machine that fails is what the explorer is looking for
        what = str(error) if isinstance(error, RunFailed) else f"{type(error).__name__}: {error}"
        return False, (f"a machine failed: {what}",)


def total(cohort: AnyCohort, unlucky: int | None = None) -> int:
    """Return the number of patterns that `explore` tries."""
    families = _families(cohort, unlucky)
    return sum(comb(cohort.users, lost) * len(cohort.fates(detect)) ** lost for lost, detect in families)


def _families(cohort: AnyCohort, unlucky: int | None) -> Iterator[tuple[int, Detect]]:
    return product(range(1 + (cohort.users if unlucky is None else unlucky)), cohort.detects)


def explore(
    cohort: AnyCohort,
    watch: Callable[[Report], None] = lambda report: None,
    jobs: int = 1,
    unlucky: int | None = None,
) -> Report:
    """Try every pattern until one breaks a law: first nobody is lost, then one user, then two, ...
    watch: called with the counts so far, every few patterns; unlucky: the most users that meet a fate."""
    report = Report()
    tasks = (delayed(attempt)(cohort, *chunk) for chunk in _chunks(cohort, unlucky))
    with workers("loky", jobs, ordered=True) as parallel:  # so that the first violation is a smallest one
        for part in parallel(tasks):
            report.add(part)
            watch(report)
            if report.violation is not None:
                break
    return report


def _chunks(cohort: AnyCohort, unlucky: int | None) -> Iterator[tuple[Detect, tuple[Pattern, ...]]]:
    for lost, detect in _families(cohort, unlucky):
        patterns = every(cohort.users, cohort.fates(detect), lost)
        while chunk := tuple(islice(patterns, CHUNK_PATTERNS)):
            yield detect, chunk


def attempt(cohort: AnyCohort, detect: Detect, patterns: tuple[Pattern, ...]) -> Report:
    """Try some patterns, up to the first that breaks a law."""
    report = Report()
    for pattern in patterns:
        completed, laws = judge(cohort, pattern, detect)
        violation = Violation(detect, pattern, laws) if laws else None
        report.add(Report(1, int(completed), int(not completed), violation))
        if laws:
            break
    report.reached = set(cohort.reached.rows)
    return report


def sample(cohort: AnyCohort, examples: int, watch: Callable[[Report], None] = lambda report: None) -> Report:
    """Try random patterns, drawn and shrunk by hypothesis."""
    report = Report()

    def breaks(detect: Detect, pattern: Pattern) -> bool:
        part = attempt(cohort, detect, (pattern,))
        report.add(part)
        watch(report)
        return part.violation is not None

    found = shrunk(cohort, examples, breaks)
    if found is not None:
        report.violation = attempt(cohort, found[0], (found[1],)).violation
    return report


def shrunk(
    cohort: AnyCohort, examples: int, breaks: Callable[[Detect, Pattern], bool]
) -> tuple[Detect, Pattern] | None:
    """Return a smallest one of the random patterns that break something; None if none of so many does."""
    from hypothesis import Phase, find, settings
    from hypothesis import strategies as st
    from hypothesis.errors import NoSuchExample

    def patterns(detect: Detect) -> Any:
        fate = st.none() | st.sampled_from(cohort.fates(detect))
        return st.tuples(st.just(detect), st.tuples(*[fate] * cohort.users))

    phases = (Phase.generate, Phase.shrink)
    how = settings(max_examples=examples, deadline=None, database=None, derandomize=True, phases=phases)
    cases = st.sampled_from(cohort.detects).flatmap(patterns)
    with suppress(NoSuchExample):
        return find(cases, lambda case: breaks(*case), settings=how)  # type: ignore[no-any-return]
    return None
