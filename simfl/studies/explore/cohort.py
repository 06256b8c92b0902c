"""A small cohort to lose users of: a scenario, and its machines over the loopback.

Both drivers take parameters, keys and graph from the scenario; `simfl run` replays a pattern as its script.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from simfl.dataplane import audit
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import Handle
from simfl.dataplane.ops import seed_array
from simfl.experiment.build import build
from simfl.protocols.loopback import run_round
from simfl.protocols.machine import SERVER, Params, Update
from simfl.protocols.protocol import Protocol
from simfl.random_streams import Entropy, Streams
from simfl.scenario.load import load
from simfl.scenario.schema import Scenario
from simfl.studies.explore import invariants
from simfl.studies.explore.invariants import Observation, Rules
from simfl.studies.explore.patterns import DETECTS, Detect, Fate, Pattern, fates, script
from simfl.studies.watch import play

D = 4  # length of the updates of the loopback's rounds: no loss depends on it
DEADLINE_S, LATENCY_S = 2.0, 0.05
LATE_S = DEADLINE_S - LATENCY_S
"""Delay of what is late: an answer to the server, two latencies later, comes amid the next step."""


@dataclass(frozen=True)
class Cohort(ABC):
    """A few users under one protocol of a scenario, ready for pattern after pattern of some families."""

    scenario: Scenario
    protocol: str
    latency_s: ClassVar[float] = LATENCY_S
    detects: ClassVar[tuple[Detect, ...]] = DETECTS

    @staticmethod
    @abstractmethod
    def settings(users: int) -> dict[str, Any]:
        """Return the blocks of the scenario that `make_cohort` leaves open."""

    @property
    def kind(self) -> Protocol:
        return self.scenario.protocols[self.protocol]

    @property
    def users(self) -> int:
        return self.scenario.population.users


Fates = Callable[[int, Any], str]
Answers = tuple[str, ...]


class Leaf(NamedTuple):
    """The end of a round: its members or the reason of its abort, and the laws that it broke by itself."""

    members: tuple[int, ...] | None
    reason: str | None
    broken: tuple[str, ...]
    rules: Rules


class Tree:
    """All rounds of a cohort that `run` was asked for, each of which is run once.

    A round asks for a user's fate only when that user sends, and what it asks next follows from the answers
    so far: a node is a question (user, point), a branch an answer, a leaf the end of a round. Where users are
    lost early, most patterns lead to the same leaf. What must come out is worked out for each by itself.
    """

    def __init__(self, run: Callable[[Fates], Observation]) -> None:
        self.run = run
        self.questions: dict[Answers, tuple[int, Any]] = {}
        self.leaves: dict[Answers, Leaf] = {}

    def find(self, fate: Fates) -> Leaf:
        """Return the end of a round under these fates."""
        answers: Answers = ()
        while answers in self.questions:
            answers = (*answers, fate(*self.questions[answers]))
        if answers not in self.leaves:
            given: list[str] = []

            def asked(user: int, message: Any) -> str:
                self.questions[tuple(given)] = user, type(message)
                given.append(fate(user, message))
                return given[-1]

            seen = self.run(asked)
            answers = tuple(given)
            broken = tuple(invariants.of_itself(seen))
            self.leaves[answers] = Leaf(seen.members, seen.out.reason, broken, seen.rules)
        return self.leaves[answers]


class RoundCohort(Cohort):
    """Users that differ in weight, of whom a majority or two must be left in a round over the loopback."""

    @staticmethod
    def settings(users: int) -> dict[str, Any]:
        return {
            "rounds": 1,
            "population": {"users": users, "devices": {"slowdown": 1.0}},
            "deadlines": dict.fromkeys(("advertise", "shares", "upload", "recovery"), DEADLINE_S),
            "privacy": {"T": 1, "D": (users - 1) // 2},
            "learning": {"epochs": 1, "batch_size": 1000, "partition": {"dirichlet": 1.0}},
        }

    @cached_property
    def points(self) -> tuple[str, ...]:
        return tuple(point for point in self.kind.points if point != "training")

    @cached_property
    def params(self) -> Params:
        return self.scenario.params(self.protocol, D)

    @cached_property
    def updates(self) -> dict[int, Update]:
        """Updates of all sizes up to beyond the clip, of weights 1 .. N."""
        made = {}
        for user in range(self.users):
            rng = Streams(self.scenario.seed).rng("explored update", user)
            values = rng.uniform(-1.2, 1.2, (1, D)) * self.params.clip
            made[user] = Update(Handle(1, D, 4, values.astype(np.float32)), user + 1)
        return made

    @cached_property
    def tree(self) -> Tree:
        return Tree(self.observe)

    def fates(self, detect: Detect) -> tuple[Fate, ...]:
        return fates(self.points, detect, LATE_S)

    def judge(self, pattern: Pattern, detect: Detect) -> tuple[bool, tuple[str, ...]]:
        """Return whether a round under a pattern is completed, and the laws that it breaks."""
        leaf = self.tree.find(fate_of(pattern, detect))
        life = invariants.of_life(leaf.members, leaf.reason, leaf.rules.expected(pattern))
        return leaf.members is not None, (*life, *leaf.broken)

    def observe(self, fate: Fates) -> Observation:
        """Return one round over the loopback; see `fate_of`."""
        ops = EagerOps(self.params.q)
        root = Streams(self.scenario.seed).bytes("entropy", self.protocol)
        users, kind, p = range(self.users), self.kind, self.params
        entropies = {party: Entropy(root, party, 0) for party in (SERVER, *users)}
        clients = {user: kind.client(user, p, ops, entropies[user]) for user in users}
        server = kind.server(users, p, ops, entropies[SERVER])
        out = run_round(server, clients, self.updates, fate, kind.offline)
        exact = None if out.result is None else self._exact(out.result, entropies)
        return Observation(self._rules(server), out, clients, exact)

    def replay(self, pattern: Pattern, detect: Detect) -> Observation:
        """Return the round of a pattern's scenario on the engine, as the loopback would have seen it."""
        played = play(build(self.replayable(pattern, detect)), self.protocol)
        return Observation(self._rules(played.machines[SERVER]), played, played.machines, played.exact[0])

    def replayed(self, pattern: Pattern, detect: Detect) -> tuple[bool, tuple[str, ...]]:
        """Do as `judge`, with the pattern's scenario on the engine."""
        seen = self.replay(pattern, detect)
        return seen.out.result is not None, tuple(invariants.broken(seen, pattern))

    def _rules(self, server: Any) -> Rules:
        return Rules(self.kind, self.params, getattr(server, "graph", None), self.points)

    def _exact(self, result: Any, entropies: Mapping[int, Entropy]) -> bool:
        """Compare the aggregate with the plain sum, which no machine has a hand in."""
        users, p = [m.user for m in result.members], self.params
        deltas = [self.updates[user].delta.content for user in users]
        weights = [self.updates[user].weight for user in users]
        total = result.total.content
        if not self.kind.offline:
            return not audit.real(total, deltas, weights)[0].any()
        seeds = [seed_array(entropies[user].peek("quantise")) for user in users]
        ones = [1] * len(users)
        differ, wrapped, _ = audit.in_field(total, deltas, weights, ones, seeds, p.clip, p.levels, p.q)[0]
        return not differ and not wrapped

    def replayable(self, pattern: Pattern, detect: Detect) -> Scenario:
        """Return the scenario in which `simfl run` meets this pattern."""
        spoken = "timeout" if detect == "timeout" else {"kind": "disconnect", "delay_s": 0.0}
        return load(self.scenario, {"dropout": script(pattern), "detect": spoken})


def fate_of(pattern: Pattern, detect: Detect) -> Fates:
    """Return a pattern as the loopback's fate of each message."""
    lost = "lose" if detect == "timeout" else "break"
    words = {"before_send": lost, "after_send": "leave", "delay": "late"}

    def fate(user: int, message: Any) -> str:
        unlucky = pattern[user]
        return words[unlucky.when] if unlucky and message.point == unlucky.point else "deliver"

    return fate
