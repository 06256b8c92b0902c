"""Cost of links of users' own: a counted round of 10,000 users, beside one in which all links are equal.

    python benchmarks/links.py [repeats]

The scenario is the one of `test_rounds.py`, with one round. Each way takes the place of the links that the
scenario has; a pass runs all ways once, one after the other. A figure is the least CPU time of the rounds
alone (no data, no start), and in brackets its ratio to `equal` in the same run.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import sys
import time
from typing import Any
from unittest.mock import patch

from benchmarks.test_rounds import MANY
from simfl.engine.driver import drive
from simfl.engine.environment import Environment
from simfl.engine.links import Network
from simfl.engine.setup import ClosedRound, RunConfig
from simfl.experiment import build
from simfl.population.availability import FOR_EVER
from simfl.population.links import Links, LinkState
from simfl.results.trace import seldom_collecting
from simfl.scenario.load import load
from simfl.virtual_time import NS

EQUAL_BPS = 98_000_000
LATENCY_S = 0.04
STEP_NS = 10**9
SERVER = (10_000_000_000, 10_000_000_000, FOR_EVER)
WAYS = ("equal", "3 classes", "own rates", "own, changing each second")


def own_bps(seed: int) -> int:
    """Mbit/s around a median of 6, a quarter of them below 3, as FedScale's are."""
    return round(random.Random(seed).lognormvariate(1.79, 1.0) * 1e6)


def links(way: str, users: int) -> Links:
    """Return the states of all users' links."""
    if way == "own, changing each second":
        rates = [own_bps(k) for k in range(users)]

        def changing(user: int, now: int) -> LinkState:
            turn = now // STEP_NS
            up_bps, down_bps = rates[(7 * turn + user) % users], rates[(11 * turn + user) % users]
            return LinkState(up_bps, down_bps, LATENCY_S, (turn + 1) * STEP_NS)

        return changing
    rates = {"equal": [6_000_000], "3 classes": [3_000_000, 6_000_000, 12_000_000]}.get(way)
    rates = rates or [own_bps(k) for k in range(users)]
    states = [LinkState(rate, rate, LATENCY_S, FOR_EVER) for rate in rates]
    return lambda user, now: states[user % len(states)]


def seconds(study: build.Experiment, way: str, protocol: str) -> tuple[float, int]:
    """Return the CPU time of the rounds of a protocol under links of this kind, and their virtual time."""
    states, rounds = links(way, study.scenario.population.users), list[ClosedRound]()
    make_world = build.make_world

    def world(*arguments: Any) -> RunConfig:
        def network(env: Environment) -> Network:
            return Network(env, states, lambda now: SERVER)

        return dataclasses.replace(make_world(*arguments), network=network)

    async def publish(closed: ClosedRound) -> None:
        rounds.append(closed)

    with patch.object(build, "make_world", world):
        session = study.session(protocol, build.modelled(study))
    with seldom_collecting():
        start = time.process_time()
        asyncio.run(drive(session, publish, lambda: None))
        took = time.process_time() - start
    assert len(rounds) == study.scenario.rounds
    return took, rounds[-1].at


def main(repeats: int = 3, users: int = 10_000) -> None:
    """Print the table."""
    population = {**MANY["population"], "users": users}
    for protocol in MANY["protocols"]:
        scenario = {**MANY, "rounds": 1, "protocols": [protocol], "population": population}
        study = build.build(load(scenario))
        took: dict[str, list[float]] = {way: [] for way in WAYS}
        virtual_s = {}
        for _ in range(repeats):
            for way in WAYS:
                cpu_s, at = seconds(study, way, protocol)
                took[way].append(cpu_s)
                virtual_s[way] = at / NS
        for way, times in took.items():
            ratio = min(times) / min(took["equal"])
            print(f"{protocol:<14}{way:<28}{min(times):8.2f} s ({ratio:.2f}), of {virtual_s[way]:,.0f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
