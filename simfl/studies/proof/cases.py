"""The cases of a protocol: every loss pattern of a few users, each distinct round once.

Rounds go over the loopback, runs over a buffer on the engine, as in `studies/explore`. Those with the fewest
losses come first, so that the first leak is a smallest one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from simfl.dataplane.symbolic import SymbolicOps
from simfl.privacy.leaks.engine import on_engine
from simfl.privacy.leaks.views import NamedEntropy, Setup, Transcript, play, union
from simfl.runs.watch import Call
from simfl.scenario.schema import Scenario
from simfl.studies.explore.buffered import BufferCohort
from simfl.studies.explore.cohort import (
    LATE_S,
    Detect,
    Fate,
    Fates,
    Pattern,
    RoundCohort,
    describe,
    every,
    fate_of,
)

Draw = Callable[..., NamedEntropy]
Words = Mapping[str, Callable[[str], Fate]]

LOST: dict[Detect, Words] = {
    "timeout": {
        "lose": lambda point: Fate(point, "before_send"),
        "late": lambda point: Fate(point, "delay", LATE_S),
    },
    "told": {
        "break": lambda point: Fate(point, "before_send"),
        "leave": lambda point: Fate(point, "after_send"),
    },
}
"""The loopback's words for a loss, by how the server learns of it, and the fates of a pattern."""


@dataclass(frozen=True)
class Case:
    """Something that was played: a loss pattern, and how the server learns of losses; round: the one whose
    users are lost, where there are several."""

    pattern: Pattern
    detect: Detect
    round: int = 0

    @property
    def losses(self) -> int:
        return sum(fate is not None for fate in self.pattern)

    def __str__(self) -> str:
        after = f" in round {self.round}, after a round without losses" if self.round else ""
        return f"{describe(self.pattern)}{after} ({self.detect})"


@dataclass(frozen=True)
class Small:
    """A synchronous protocol with a few users, as short updates as its code allows, and their scenario."""

    cohort: RoundCohort

    @property
    def setup(self) -> Setup:
        return self.cohort.short

    def every_case(self, most: int | None = None) -> Iterator[tuple[Case, Transcript]]:
        """Yield every round that losses of at most so many users lead to, and then pairs of rounds."""
        for detect in self.cohort.detects:
            yield from self.rounds(detect, most)
        for detect in self.cohort.detects:
            yield from self.two_rounds(detect)

    def session(
        self, ops: SymbolicOps, draw: Draw = NamedEntropy, name: bytes | None = None, call: Call | None = None
    ) -> Transcript:
        """Play a round without losses. name: of another session; draw, call: as of `views.play`."""
        p = self.setup.params
        setup = self.setup if name is None else replace(self.setup, params=replace(p, session=name))
        return play(setup, ops=ops, draw=draw, update=(name or b"").decode() or None, call=call)

    def replay(self, case: Case) -> Transcript:
        """Play a case."""
        fate = fate_of(case.pattern, case.detect)
        return self._pair(fate) if case.round else play(self.setup, fate)

    def rounds(self, detect: Detect, most: int | None = None) -> Iterator[tuple[Case, Transcript]]:
        run = partial(play, self.setup)
        for pattern, seen in every_round(run, LOST[detect], self.cohort.users, most):
            yield Case(pattern, detect), seen

    def two_rounds(self, detect: Detect, most: int = 1) -> Iterator[tuple[Case, Transcript]]:
        """Yield two rounds as one, without losses in the first: what is used twice shows in their union."""
        for pattern, seen in every_round(self._pair, LOST[detect], self.cohort.users, most):
            yield Case(pattern, detect, round=1), seen

    def _pair(self, fate: Fates) -> Transcript:
        ops = SymbolicOps(self.setup.params.q)  # one for both: a nonce must not come twice
        first = play(self.setup, ops=ops)
        return union([first, play(self.setup, fate, index=1, ops=ops)])

    def scenario(self, case: Case) -> Scenario:
        """Return the scenario in which `simfl run`, and `simfl privacy proof`, meet a case."""
        return self.cohort.replayable(case.pattern, case.detect, case.round)


def every_round(
    run: Callable[[Fates], Transcript], words: Words, users: int, most: int | None = None
) -> Iterator[tuple[Pattern, Transcript]]:
    """Yield each round that losses can lead to, with its pattern: a round asks for a user's fate when that
    user sends, and what it asks next follows from the answers so far. words: the losses to try, of `LOST`."""
    level: list[tuple[str, ...]] = [()]
    for _ in range(1 + (users if most is None else min(most, users))):
        following: list[tuple[str, ...]] = []
        for prefix in level:
            asked: list[tuple[int, str]] = []

            def fate(user: int, message: Any, prefix: Any = prefix, asked: Any = asked) -> str:
                asked.append((user, message.point))
                return prefix[len(asked) - 1] if len(asked) <= len(prefix) else "deliver"

            seen = run(fate)
            answers = [*prefix, *["deliver"] * (len(asked) - len(prefix))]
            met = {user: words[a](at) for (user, at), a in zip(asked, answers, strict=True) if a in words}
            yield tuple(met.get(user) for user in range(users)), seen
            following += [
                (*answers[:k], word)
                for k in range(len(prefix), len(asked))
                if asked[k][0] not in met
                for word in words
            ]
        level = following


@dataclass(frozen=True)
class SmallBuffer:
    """A buffered protocol with a few users: short runs on the engine."""

    cohort: BufferCohort

    def every_case(self, most: int = 1) -> Iterator[tuple[Case, Transcript]]:
        """Yield the run of every pattern of at most so many unlucky users."""
        for unlucky in range(most + 1):
            for detect in self.cohort.detects:
                for pattern in every(self.cohort.users, self.cohort.fates(detect), unlucky):
                    yield (case := Case(pattern, detect)), self.replay(case)

    def session(
        self, ops: SymbolicOps, draw: Draw = NamedEntropy, name: bytes | None = None, call: Call | None = None
    ) -> Transcript:
        """Play a run without losses. name: of another session; draw, call: as of `views.play`."""
        experiment = self.cohort.experiment((None,) * self.cohort.users, "told")
        return on_engine(experiment, self.cohort.protocol, ops=ops, draw=draw, name=name, call=call)

    def replay(self, case: Case) -> Transcript:
        """Play a case."""
        return on_engine(self.cohort.experiment(case.pattern, case.detect), self.cohort.protocol)

    def scenario(self, case: Case) -> Scenario:
        return self.cohort.replayable(case.pattern, case.detect)
