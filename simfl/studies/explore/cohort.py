"""A small cohort to lose users of: a scenario, and its machines over the loopback.

The scenario is the bridge between the two drivers: its parameters, keys and graph are those of the
loopback's machines, and a pattern becomes a script of losses that `simfl run` replays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from simfl.dataplane import audit
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import Handle
from simfl.dataplane.ops import seed_array
from simfl.protocols.loopback import run_round
from simfl.protocols.machine import SERVER, Params, Update
from simfl.protocols.protocol import Protocol
from simfl.random_streams import Entropy, Streams
from simfl.scenario.load import load
from simfl.scenario.schema import Scenario
from simfl.studies.explore.invariants import Observation, Rules
from simfl.studies.explore.patterns import DETECTS, Detect, Fate, Pattern, fates, script
from simfl.studies.explore.search_tree import Tree

D = 4
"""Length of the updates of the loopback's rounds: no loss depends on it."""

DEADLINE_S, LATENCY_S = 2.0, 0.05
LATE_S = DEADLINE_S - LATENCY_S
"""By how much to be late: what answers a message of the server comes two latencies later, and so in the
middle of the next step."""


def cohort_scenario(
    protocol: str, spec: dict[str, Any], users: int, seed: int, overrides: Mapping[str, Any]
) -> Scenario:
    """A round of so many users that differ in weight; as many may be lost as leaves two or a majority.

    Raises:
        ScenarioError: an override does not fit.
    """
    lost = (users - 1) // 2
    own = {
        "rounds": 1,
        "population": {"users": users, "devices": {"slowdown": 1.0}},
        "deadlines": dict.fromkeys(("advertise", "shares", "upload", "recovery"), DEADLINE_S),
        "privacy": {"T": 1, "D": lost},
        "learning": {"epochs": 1, "batch_size": 1000, "partition": {"dirichlet": 1.0}},
    }
    return load(small_world(protocol, spec, seed, LATENCY_S) | own, overrides)


def small_world(protocol: str, spec: dict[str, Any], seed: int, latency_s: float) -> dict[str, Any]:
    """What the scenarios of all explored cohorts share."""
    return {
        "name": f"explore_{protocol}",
        "seed": seed,
        "clock": "modelled",
        "network": {
            "users": {"preset": "4g", "latency_s": latency_s},
            "server": {"uplink_mbps": 1000.0, "downlink_mbps": 1000.0},
            "overhead_s": 0.0002,
        },
        "detect": "timeout",
        "quantization": {"levels": 65536, "clip": 4.0},
        "protocols": {protocol: spec},
    }


@dataclass(frozen=True)
class Cohort:
    """One protocol of a scenario, ready for round after round."""

    scenario: Scenario
    protocol: str

    @cached_property
    def kind(self) -> Protocol:
        """The protocol."""
        return self.scenario.protocols[self.protocol]

    @property
    def users(self) -> int:
        """N."""
        return self.scenario.population.users

    @cached_property
    def points(self) -> tuple[str, ...]:
        """Where users send, and so where they can be lost."""
        return tuple(point for point in self.kind.points if point != "training")

    @cached_property
    def params(self) -> Params:
        """The scenario's, for short updates."""
        return self.scenario.params(self.protocol, D)

    @cached_property
    def updates(self) -> dict[int, Update]:
        """Updates of all sizes up to beyond the clip, of weights 1 .. N."""
        streams = Streams(self.scenario.seed)
        made = {}
        for user in range(self.users):
            values = streams.rng("explored update", user).uniform(-1.2, 1.2, (1, D)) * self.params.clip
            made[user] = Update(Handle(1, D, 4, values.astype(np.float32)), user + 1)
        return made

    @cached_property
    def tree(self) -> Tree:
        """The rounds that were observed so far."""
        return Tree(self.observe)

    @property
    def detects(self) -> tuple[Detect, ...]:
        """The families of patterns."""
        return DETECTS

    def fates(self, detect: Detect) -> tuple[Fate, ...]:
        """What can become of a user."""
        return fates(self.points, detect, LATE_S)

    def observe(self, fate: Callable[[int, Any], str]) -> Observation:
        """One round over the loopback; see `fate_of`."""
        ops = EagerOps(self.params.q)
        root = Streams(self.scenario.seed).bytes("entropy", self.protocol)
        entropies = {party: Entropy(root, party, 0) for party in (SERVER, *range(self.users))}
        clients = {
            user: self.kind.client(user, self.params, ops, entropies[user]) for user in range(self.users)
        }
        server = self.kind.server(range(self.users), self.params, ops, entropies[SERVER])
        out = run_round(server, clients, self.updates, fate)
        exact = None
        if out.result is not None:
            exact = self._exact(out.result, entropies)
        rules = Rules(self.kind, self.params, getattr(server, "graph", None), self.points)
        return Observation(rules, out, clients, exact)

    def _exact(self, result: Any, entropies: Mapping[int, Entropy]) -> bool:
        """Whether the aggregate is the plain sum, summed a second time without any machine."""
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
        """The scenario in which `simfl run` meets this pattern."""
        spoken = "timeout" if detect == "timeout" else {"kind": "disconnect", "delay_s": 0.0}
        return load(self.scenario, {"dropout": script(pattern), "detect": spoken})


def fate_of(pattern: Pattern, detect: Detect) -> Callable[[int, Any], str]:
    """A pattern as the loopback's fate of each message."""
    lost = "lose" if detect == "timeout" else "break"
    words = {"before_send": lost, "after_send": "leave", "delay": "late"}

    def fate(user: int, message: Any) -> str:
        mine: Fate | None = pattern[user]
        return words[mine.when] if mine is not None and message.point == mine.point else "deliver"

    return fate
