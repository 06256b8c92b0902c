"""Loss patterns, and a small cohort to lose users of: a scenario, and its machines over the loopback.

A pattern is a fate, or none, of each user at every boundary between two steps. By the way that
the server learns of a loss there are two families; asynchronous runs have two more (`buffered.py`):

    timeout   lost before it sends at a point, or late there: sent once the server has given it up
    told      lost before or after it sends at a point; the transport reports it at once

Lost after sending at one point and lost before sending at the next are the same thing to a server that
only has its deadlines. Lost amid sending, or not counted, is to every machine lost before it.

Both drivers take parameters, keys and graph from the scenario; `simfl run` replays a pattern as its script.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from simfl.dataplane import audit
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import F32, Handle
from simfl.dataplane.ops import seed_array
from simfl.privacy.leaks import views as leaks
from simfl.privacy.leaks.engine import on_engine
from simfl.privacy.leaks.laws import learned
from simfl.protocols.graphs import Evolution, Graph
from simfl.protocols.loopback import run_round
from simfl.protocols.machine import SERVER, Params, Update
from simfl.protocols.protocol import SIGNED_STAGES, STAGES, Mode, Protocol
from simfl.random_streams import Entropy, Streams
from simfl.runs.build import build
from simfl.runs.watch import run_watched, watched
from simfl.scenario.load import load
from simfl.scenario.schema import Scenario
from simfl.studies.explore import invariants
from simfl.studies.explore.invariants import Members, Observation
from simfl.studies.explore.reached import Reached, Row, Tried, tables

Detect = Literal["timeout", "told", "busy", "flapping"]
DETECTS: tuple[Detect, ...] = ("timeout", "told")


@dataclass(frozen=True, slots=True, order=True)
class Fate:
    """The fate of a user at a point of the round, or of its first cycle in an asynchronous run."""

    point: str
    when: Literal["before_send", "mid_send", "after_send", "not_counted", "delay"]
    delay_s: float | None = None


Pattern = tuple[Fate | None, ...]


def every(users: int, choices: Sequence[Fate], unlucky: int) -> Iterator[Pattern]:
    """Yield all patterns in which so many users meet a fate."""
    for who in combinations(range(users), unlucky):
        for what in product(choices, repeat=unlucky):
            met = dict(zip(who, what, strict=True))
            yield tuple(met.get(user) for user in range(users))


def script(pattern: Pattern, index: int = 0) -> dict[str, Any]:
    """Return a pattern, of the round of this number, as a scenario's `dropout`."""
    losses = [
        {"user": user, "round": index, "at": fate.point, "when": fate.when, "delay_s": fate.delay_s}
        for user, fate in enumerate(pattern)
        if fate is not None
    ]
    return {"kind": "script", "losses": losses}


WORDS = {
    "before_send": "lost before", "mid_send": "lost amid", "after_send": "lost after",
    "not_counted": "not counted at", "delay": "late at",
}  # fmt: skip


def describe(pattern: Pattern) -> str:
    parts = [f"user {user} {WORDS[f.when]} {f.point}" for user, f in enumerate(pattern) if f is not None]
    return ", ".join(parts) or "nobody lost"


D = 4  # length of the updates of the loopback's rounds: no loss depends on it
DEADLINE_S, LATENCY_S = 2.0, 0.05
LATE_S = DEADLINE_S - LATENCY_S
"""Delay of what is late: an answer to the server, two latencies later, comes amid the next step."""


@dataclass(frozen=True)
class Cohort:
    """A few users under one protocol of a scenario, ready for pattern after pattern of some families."""

    scenario: Scenario
    protocol: str
    latency_s: ClassVar[float] = LATENCY_S
    detects: ClassVar[tuple[Detect, ...]] = DETECTS
    held: ClassVar[tuple[str, ...]] = ()
    """The laws that every pattern is held to."""

    @property
    def kind(self) -> Protocol:
        return self.scenario.protocols[self.protocol]

    @property
    def users(self) -> int:
        return self.scenario.population.users

    @cached_property
    def withstands(self) -> int | None:
        return self.kind.max_colluders(self.scenario.params(self.protocol, 1))

    @property
    def rows(self) -> list[Row]:
        """All that its machines could reach of their tables."""
        p, kind = self.scenario.params(self.protocol, 1), self.kind
        ops, root = EagerOps(p.q), bytes(32)
        client = kind.client(0, p, ops, Entropy(root, 0, 0))
        server = kind.server(range(self.users), p, ops, Entropy(root, SERVER, 0))
        return list(tables(client, server, kind.round_timers, kind.mode is Mode.BUFFERED))

    @property
    def laws(self) -> Iterator[Tried]:
        """Yield the laws that patterns are held to, and those that there is nothing to hold to."""
        yield from (Tried(law) for law in self.held)
        promised = "" if self.withstands is not None else "the protocol promises nothing (`max_colluders`)"
        yield Tried("nothing beyond the sum is learned", because=promised)

    @cached_property
    def reached(self) -> Reached:
        """The rows that its machines have reached, in all patterns so far."""
        return Reached()

    def learned(self, play: Callable[[], leaks.Transcript]) -> Iterator[str]:
        """Yield what the server and the colluders whom the protocol withstands learn beyond sums of what is
        played, which is not played where nothing is promised."""
        if self.withstands is not None:
            yield from learned(play(), self.withstands)


Fates = Callable[[int, Any], str]
Answers = tuple[str, ...]


class Leaf(NamedTuple):
    """The end of a round: its members or the reason of its abort, and the laws that it broke by itself."""

    members: Members | None
    reason: str | None
    broken: tuple[str, ...]
    graph: Graph | None


class Tree:
    """All rounds of a cohort that `run` was asked for, each of which is run once.

    A round asks for a user's fate only when that user sends, and what it asks next follows from the answers
    so far: a node is a question (user, point), a branch an answer, a leaf the end of a round. Where users are
    lost early, most patterns lead to the same leaf. The expected outcome is computed for each by itself.
    """

    def __init__(
        self, run: Callable[[Fates], Observation], secrets: Callable[[Fates], Iterator[str]]
    ) -> None:
        self.run, self.secrets = run, secrets
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
            broken = (*invariants.of_itself(seen), *self.secrets(fate))
            self.leaves[answers] = Leaf(seen.members, seen.out.reason, broken, seen.graph)
        return self.leaves[answers]


class RoundCohort(Cohort):
    """Users that differ in weight, of whom a majority or two must be left in a round over the loopback."""

    held = ("each sum is exact", "a round ends as the thresholds say", "honest messages are not refused")

    @property
    def laws(self) -> Iterator[Tried]:
        yield from super().laws
        if "recovery" not in self.kind.round_timers:
            because = "it has no recovery"
        else:
            because = "the scenario waits for all answers" if self.params.all_answers else ""
        yield Tried("a recovery with enough answers does not wait", because=because)

    @staticmethod
    def settings(users: int) -> dict[str, Any]:
        """Return the blocks of the scenario that `make_cohort` leaves open."""
        return {
            "rounds": 1,
            "population": {"users": users, "devices": {"slowdown": 1.0}},
            "deadlines": dict.fromkeys(SIGNED_STAGES, DEADLINE_S),
            "privacy": {"T": 1, "D": (users - 1) // 2},
            "learning": {"epochs": 1, "batch_size": 1000, "partition": {"dirichlet": 1.0}},
        }

    @cached_property
    def points(self) -> tuple[str, ...]:
        return tuple(point for point in self.kind.round_points if point != "training")

    @cached_property
    def params(self) -> Params:
        return self.scenario.params(self.protocol, D)

    @cached_property
    def short(self) -> leaks.Setup:
        """The machines as symbols meet them: with as few coordinates as tell all."""
        p = leaks.shortened(self.kind, self.scenario.params(self.protocol, 1))
        root = Streams(self.scenario.seed).bytes("entropy", self.protocol)
        return leaks.Setup(self.kind, p, tuple(range(self.users)), root)

    @cached_property
    def updates(self) -> dict[int, Update]:
        """Updates of all sizes up to beyond the clip, of weights 1 .. N."""
        made = {}
        for user in range(self.users):
            rng = Streams(self.scenario.seed).rng("explored update", user)
            values = rng.uniform(-1.2, 1.2, (1, D)) * self.params.clip
            made[user] = Update(Handle(1, D, F32, values.astype(np.float32)), user + 1)
        return made

    @cached_property
    def tree(self) -> Tree:
        return Tree(self.observe, lambda fate: self.learned(lambda: leaks.play(self.short, fate)))

    def fates(self, detect: Detect) -> tuple[Fate, ...]:
        lost, late = [Fate(point, "before_send") for point in self.points], detect == "timeout"
        return (*lost, *(Fate(p, "delay", LATE_S) if late else Fate(p, "after_send") for p in self.points))

    def judge(self, pattern: Pattern, detect: Detect) -> tuple[bool, tuple[str, ...]]:
        """Return whether a round under a pattern is completed, and the laws that it breaks."""
        leaf = self.tree.find(fate_of(pattern, detect))
        life = invariants.of_life(leaf.members, leaf.reason, self.expected(pattern, leaf.graph))
        return leaf.members is not None, (*life, *leaf.broken)

    def observe(self, fate: Fates) -> Observation:
        """Return one round over the loopback; see `fate_of`."""
        ops = EagerOps(self.params.q)
        root = Streams(self.scenario.seed).bytes("entropy", self.protocol)
        users, kind, p = range(self.users), self.kind, self.params
        entropies = {party: Entropy(root, party, 0) for party in (SERVER, *users)}
        made = {user: kind.client(user, p, ops, entropies[user]) for user in users}
        clients = {user: watched(machine, user, self.reached) for user, machine in made.items()}
        server = watched(kind.server(users, p, ops, entropies[SERVER]), SERVER, self.reached)
        out = run_round(server, clients, self.updates, fate, kind.offline)
        exact = None if out.result is None else self._exact(out.result, entropies)
        return Observation(p, getattr(server, "graph", None), out, clients, exact)

    def replay(self, pattern: Pattern, detect: Detect) -> Observation:
        """Return the round of a pattern's scenario on the engine, as the loopback would have seen it."""
        played = run_watched(build(self.replayable(pattern, detect)), self.protocol)
        graph = getattr(played.machines[SERVER], "graph", None)
        return Observation(self.params, graph, played, played.machines, played.exact[0])

    def replayed(self, pattern: Pattern, detect: Detect) -> tuple[bool, tuple[str, ...]]:
        """Do as `judge`, with the pattern's scenario on the engine."""
        seen = self.replay(pattern, detect)
        life = invariants.of_life(seen.members, seen.out.reason, self.expected(pattern, seen.graph))
        scenario = self.replayable(pattern, detect)
        known = self.learned(lambda: on_engine(build(scenario), self.protocol))
        return seen.members is not None, (*life, *invariants.of_itself(seen), *known)

    def expected(self, pattern: Pattern, graph: Graph | None) -> frozenset[int] | None:
        """Return the users whose updates the aggregate must hold; None if there must be no aggregate.

        It follows from the papers' rules and sets of users alone, not from a machine.
        """
        # V1 .. V4 are those whose message comes in time at a step. LightSecAgg needs U at each (Theorem 1),
        # SecAgg and its graphs t, and CCESA's Theorem 1; a user with fewer than t_i neighbours left stops.
        graph, p = graph or {}, self.params
        t = {i: max(p.t, len(graph[i]) // 2 + 1) if p.majority else p.t for i in graph}
        at = {point: now for now, point in enumerate(self.points)}
        too_late = {u: at[f.point] + (f.when == "after_send") for u, f in enumerate(pattern) if f}
        present, sets = frozenset(range(self.users)), dict[str, frozenset[int]]()
        for point, now in at.items():
            present = frozenset(user for user in present if now < too_late.get(user, len(at)))
            if point == "upload" and p.batches.broken != "keep":
                batch = [frozenset(range(k, k + p.batches.T)) for k in range(0, self.users, p.batches.T)]
                whole = frozenset().union(*(b for b in batch if b <= present))
                if p.batches.broken == "refuse" and whole != present:
                    return None
                present = whole
            sets[point] = present
            if len(present) < self.kind.needed(point, p):
                return None
            if graph and point in ("advertise", "shares", "consistency"):
                present = frozenset(i for i in present if len(present.intersection(graph[i])) >= max(2, t[i]))
        if graph and not Evolution(graph, t, *(sets[point] for point in STAGES)).reliable:
            return None
        return sets["upload"]

    def _exact(self, result: Any, entropies: Mapping[int, Entropy]) -> bool:
        """Compare the aggregate with the plain sum, in which no machine has a hand."""
        users, p, total = [m.user for m in result.members], self.params, result.total.content
        deltas = [self.updates[user].delta.content for user in users]
        weights = [self.updates[user].weight for user in users]
        if not self.kind.offline:
            return not audit.real(total, deltas, weights)[0].any()
        ones, seeds = [1] * len(users), [seed_array(entropies[user].peek("quantise")) for user in users]
        differ, wrapped, _ = audit.in_field(total, deltas, weights, ones, seeds, p.clip, p.levels, p.q)[0]
        return not differ and not wrapped

    def replayable(self, pattern: Pattern, detect: Detect, index: int = 0) -> Scenario:
        """Return the scenario in which `simfl run` meets a pattern in its last round, of this number."""
        spoken = "timeout" if detect == "timeout" else {"kind": "disconnect", "delay_s": 0.0}
        return load(self.scenario, {"rounds": index + 1, "dropout": script(pattern, index), "detect": spoken})


def fate_of(pattern: Pattern, detect: Detect) -> Fates:
    """Return a pattern as the loopback's fate of each message."""
    lost = "lose" if detect == "timeout" else "break"
    words = {"before_send": lost, "after_send": "leave", "delay": "late"}
    verdicts = {(user, fate.point): words[fate.when] for user, fate in enumerate(pattern) if fate}
    return lambda user, message: verdicts.get((user, message.point), "deliver")
