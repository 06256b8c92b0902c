"""The time that an exploration will take, from a few of its patterns.

Patterns are counted exactly. A round over the loopback is run once for all patterns that lead to it: one of
`size` such patterns costs 1/size of a round, so that the mean over random patterns, times their number, is
the cost of all rounds, however few of them are met here (Knuth 1975).
"""

import time
from collections.abc import Callable
from dataclasses import replace
from math import fsum, prod
from statistics import fmean

from simfl.random_streams import Streams
from simfl.studies.explore.buffered import BufferCohort
from simfl.studies.explore.cohort import Detect, Pattern, RoundCohort, fate_of

SAMPLE_S = 5.0  # seconds that are spent on the estimate
FEW_PATTERNS = 4_000  # so many take less than an hour, at 0.9 s each: nothing is estimated
LEAST_PATTERNS = 3  # of each family, however long they take


def seconds_for_all(
    cohort: RoundCohort | BufferCohort, jobs: int = 1, look: Callable[[Pattern, Detect], object] | None = None
) -> float:
    """Return about how many seconds all patterns of a cohort take on this machine.

    look: what is done once for each round, by one of its patterns; what `explore` does unless given.
    """
    probe = replace(cohort)  # what its machines reach here is not part of the exploration
    rng = Streams(cohort.scenario.seed).rng("estimate")
    costs: dict[Detect, list[float]] = {detect: [] for detect in cohort.detects}
    end = time.monotonic() + SAMPLE_S
    while time.monotonic() < end or len(costs[cohort.detects[-1]]) < LEAST_PATTERNS:
        for detect in cohort.detects:
            fates = [None, *cohort.fates(detect)]
            pattern = tuple(fates[int(rng.integers(len(fates)))] for _ in range(cohort.users))
            costs[detect].append(_cost(probe, pattern, detect, look))
    number = {detect: (1 + len(cohort.fates(detect))) ** cohort.users for detect in cohort.detects}
    return fsum(number[detect] * fmean(found) for detect, found in costs.items()) / jobs


def _cost(
    probe: RoundCohort | BufferCohort,
    pattern: Pattern,
    detect: Detect,
    look: Callable[[Pattern, Detect], object] | None,
) -> float:
    """Return the seconds of a pattern, with its part of its round's."""
    vars(probe).pop("tree", None)  # it remembers rounds
    first = _seconds(probe.judge, pattern, detect)
    if isinstance(probe, BufferCohort):
        return first
    if look is not None:
        return _seconds(look, pattern, detect) / _size(probe, detect)
    again = _seconds(probe.judge, pattern, detect)
    return again + max(0.0, first - again) / _size(probe, detect)


def _seconds(call: Callable[[Pattern, Detect], object], pattern: Pattern, detect: Detect) -> float:
    since = time.perf_counter()
    call(pattern, detect)
    return time.perf_counter() - since


def _size(probe: RoundCohort, detect: Detect) -> int:
    """Return the number of patterns that lead to the one round that was run."""
    (answers,) = probe.tree.leaves
    asked = [(*probe.tree.questions[answers[:k]], answer) for k, answer in enumerate(answers)]

    def fits(user: int, fate: Pattern) -> bool:
        verdict = fate_of((None,) * user + fate, detect)
        return all(verdict(user, message) == answer for who, message, answer in asked if who == user)

    fates = [None, *probe.fates(detect)]
    return prod(sum(fits(user, (fate,)) for fate in fates) for user in range(probe.users))
