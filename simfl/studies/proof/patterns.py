"""The sweep: the laws of `laws.py` for every case of `cases.py`, times every coalition."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import Any

from simfl.errors import counted
from simfl.privacy.leaks.coalitions import check_colluders, spread, up_to
from simfl.privacy.leaks.engine import on_engine
from simfl.privacy.leaks.laws import Leak, beyond, broken
from simfl.privacy.leaks.views import Transcript
from simfl.random_streams import Streams
from simfl.runs.build import build
from simfl.scenario.load import load
from simfl.scenario.schema import Scenario
from simfl.scenario.world import Measured
from simfl.studies.explore import effort
from simfl.studies.explore.buffered import BufferCohort
from simfl.studies.explore.cohort import Detect, Pattern, RoundCohort
from simfl.studies.explore.effort import FEW_PATTERNS
from simfl.studies.explore.rounds import make_cohort, shrunk, total
from simfl.studies.proof.cases import Case, Small, SmallBuffer

RANDOM_COALITIONS = 200  # of a size, in a whole run: beyond, so many random ones
FEW_VIEWS = 3  # of a size, that are timed for an estimate
FEW_LOSSES = 1  # with which one colluder more is tried
Coalitions = Mapping[int, Sequence[tuple[int, ...]]]


@dataclass(frozen=True)
class Found:
    """A broken law: in which case, who colludes, and the leak or the sentence of another law."""

    case: Case | None
    coalition: tuple[int, ...]
    what: Leak | str

    @property
    def order(self) -> tuple[bool, int]:
        """Leaks come before other broken laws, then fewer losses before more."""
        return isinstance(self.what, str), self.case.losses if self.case else 0

    def __str__(self) -> str:
        who = ", ".join(map(str, self.coalition))
        said = f"users {who} collude" if len(self.coalition) > 1 else f"user {who} colludes"
        case = f"{self.case}; " if self.case else ""
        return f"{case}{said if self.coalition else 'nobody colludes'}:\n{self.what}"


@dataclass
class Report:
    """The counts of a sweep.

    Attributes:
        rounds: rounds, or runs over a buffer.
        results: those with a result.
        views: of these, by the number of colluders.
        leaks: views that break a law.
        pairs: two rounds as one, without losses in the first.
        pair_views: of these, by the number of colluders.
        pair_leaks: views of two rounds that break a law.
        first: the smallest finding of each number of colluders.
        further: the first of one colluder more than was asked for.
        played: rounds of a run that is being played.
    """

    rounds: int = 0
    results: int = 0
    views: Counter[int] = field(default_factory=Counter)
    leaks: Counter[int] = field(default_factory=Counter)
    pairs: int = 0
    pair_views: Counter[int] = field(default_factory=Counter)
    pair_leaks: Counter[int] = field(default_factory=Counter)
    first: dict[int, Found] = field(default_factory=dict)
    further: Found | None = None
    played: int = 0

    def so_far(self) -> str:
        """Return how far a sweep has come, as the end of a line."""
        rounds = counted(self.rounds + self.pairs or self.played, "round")
        views = counted((self.views + self.pair_views).total(), "view")
        return f", {rounds}, {views}"

    @property
    def found(self) -> Found | None:
        """The finding with the fewest colluders."""
        return self.first[min(self.first)] if self.first else None

    def look(self, case: Case | None, seen: Transcript, coalitions: Coalitions) -> None:
        """Hold the laws to the view of every coalition, and count."""
        views, leaks = self.views, self.leaks
        if case is not None and case.round:
            self.pairs += 1
            views, leaks = self.pair_views, self.pair_leaks
        else:
            self.rounds += 1
            self.results += bool(seen.results)
        base = seen.view()
        for size, some in coalitions.items():
            for coalition in some:
                views[size] += 1
                knowledge = seen.view(coalition, base) if coalition else base
                what = beyond(seen, knowledge) or next(broken(seen, knowledge), None)
                if what is not None:
                    leaks[size] += 1
                    self._keep(Found(case, coalition, what))

    def _keep(self, found: Found) -> None:
        best = self.first.setdefault(len(found.coalition), found)
        if found.order < best.order:
            self.first[len(found.coalition)] = found


def make_small(
    protocol: str, users: int, seed: int = 0, changes: Mapping[str, Any] | None = None
) -> Small | SmallBuffer:
    """Return a protocol with a few users. changes: of its scenario by dotted key, or by a letter: U, T and D
    are of `privacy`, others the protocol's own."""
    changes = dict(changes or {})
    name = protocol.rpartition(":")[2]
    long = {
        key if "." in key else f"{'privacy' if key in 'UTD' else f'protocols.{name}'}.{key}": value
        for key, value in changes.items()
    }
    if "D" not in changes and changes.keys() & {"U", "t"}:
        long.setdefault("privacy.D", 0)  # it is U or t that says how many may be lost
    cohort = make_cohort(protocol, users, seed, long)
    return Small(cohort) if isinstance(cohort, RoundCohort) else SmallBuffer(cohort)


def sweep(small: Small | SmallBuffer, colluders: int = 1, report: Report | None = None) -> Report:
    """Try every case with every coalition of at most so many users. Where nothing is found, `further` is what
    one colluder more learns. report: takes the counts as they come."""
    report, users = report or Report(), small.cohort.users
    coalitions = up_to(colluders, users)
    for case, seen in small.every_case():
        report.look(case, seen, coalitions)
    if not report.first and colluders + 1 < users:
        report.further = _beyond_the_threshold(small, colluders + 1)
    return report


def seconds_for_all(small: Small | SmallBuffer, colluders: int) -> float:
    """Return about how many seconds `sweep` takes on this machine: 0 where that is surely below an hour."""
    cohort, report = small.cohort, Report()
    coalitions = up_to(colluders, cohort.users)
    if isinstance(cohort, BufferCohort) or total(cohort) <= FEW_PATTERNS:
        return 0.0

    def look(pattern: Pattern, detect: Detect) -> None:
        case = Case(pattern, detect)
        report.look(case, small.replay(case), coalitions)

    return effort.seconds_for_all(cohort, look=look)


def seconds_for_sample(small: Small | SmallBuffer, examples: int, colluders: int) -> float:
    """Return about how many seconds `sample` takes on this machine, from a case without losses and a few
    coalitions of each size."""
    users = small.cohort.users
    coalitions = up_to(colluders, users)
    since = time.perf_counter()
    seen = small.replay(Case((None,) * users, small.cohort.detects[0]))
    played_s = time.perf_counter() - since
    return examples * (played_s + seconds_to_look(seen, coalitions))


def seconds_to_look(seen: Transcript, coalitions: Coalitions) -> float:
    """Return about how many seconds `Report.look` takes, from a few coalitions of each size."""
    seconds = 0.0
    for size, some in coalitions.items():
        few = some[:: -(-len(some) // FEW_VIEWS)]
        since = time.perf_counter()
        Report().look(None, seen, {size: few})
        seconds += (time.perf_counter() - since) / len(few) * len(some)
    return seconds


def _beyond_the_threshold(small: Small | SmallBuffer, colluders: int) -> Found | None:
    report = Report()
    coalitions = {colluders: spread(range(small.cohort.users), colluders, RANDOM_COALITIONS)}
    for case, seen in small.every_case(FEW_LOSSES):
        report.look(case, seen, coalitions)
        if report.first:
            break
    return report.found


def sample(
    small: Small | SmallBuffer, examples: int, colluders: int = 1, report: Report | None = None
) -> Report:
    """Try random patterns, drawn and shrunk by hypothesis, with every coalition. report: as of `sweep`."""
    cohort, report = small.cohort, report or Report()
    coalitions = up_to(colluders, cohort.users)

    def leaks(detect: Detect, pattern: Pattern) -> bool:
        before, case = report.leaks.total(), Case(pattern, detect)
        report.look(case, small.replay(case), coalitions)
        return report.leaks.total() > before

    shrunk(cohort, examples, leaks)
    return report


def symbolic_run(
    scenario: Scenario, protocol: str, colluders: int, report: Report
) -> tuple[Transcript, Coalitions]:
    """Play a whole run of one entry of a scenario on symbols, on the engine.

    Args:
        report: Takes the count of rounds as they end.

    Returns:
        What was sent, drawn and summed; and the coalitions of its users, or `RANDOM_COALITIONS` random ones
        of a size.

    Raises:
        BadInput: A coalition of all users.
    """
    check_colluders(colluders, scenario.population.users)
    if isinstance(scenario.clock, Measured):  # it would measure symbols
        scenario = load(scenario, {"clock": "modelled"})

    def published() -> None:
        report.played += 1

    seen, users = on_engine(build(scenario), protocol, published), range(scenario.population.users)
    rng = Streams(scenario.seed).rng("coalitions")
    coalitions = {}
    for size in range(colluders + 1):
        if comb(len(users), size) <= RANDOM_COALITIONS:
            coalitions[size] = list(combinations(users, size))
        else:
            drawn = (rng.choice(len(users), size, replace=False).tolist() for _ in range(RANDOM_COALITIONS))
            coalitions[size] = [tuple(sorted(some)) for some in drawn]
    return seen, coalitions


def proof(
    protocol: str,
    users: int = 4,
    colluders: int = 1,
    random: int | None = None,
    seed: int = 0,
    **changes: Any,
) -> Report:
    """Return what the server and at most `colluders` of a few users learn beyond sums, whoever is lost.

    Args:
        protocol: One of ours, or `path.py:Name`.
        users: In all; beyond 5 give `random`.
        colluders: The most users who collude with the server, at most all but one.
        random: Number of random loss patterns to try instead of all.
        seed: Seed of keys and random graphs.
        changes: Letters of the protocol, such as `U=3`.

    Raises:
        BadInput: The parameters do not fit, `colluders` leaves no honest user or asks for more coalitions
            than can be looked at, or a kernel of the protocol has no twin on terms.

    >>> proof("lightsecagg", users=3, colluders=1).found is None
    True
    """
    small = make_small(protocol, users, seed, changes)
    return sweep(small, colluders) if random is None else sample(small, random, colluders)


def leaks(
    protocol: str, users: int = 4, collude: int = 1, random: int | None = None, seed: int = 0, **changes: Any
) -> Report:
    """Return `proof(...)`, whose earlier name this is.

    >>> leaks("lightsecagg", users=3, collude=1).found is None
    True
    """
    return proof(protocol, users, collude, random, seed, **changes)
