"""A population is a number: a user is the same among ten others or a million, and costs nothing unseen."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from simfl.errors import ScenarioError
from simfl.learning.partition import Hands
from simfl.runs.build import build
from simfl.runs.simulation import run
from simfl.scenario.load import load
from simfl.trace.rows import Begin
from tests.engine.harness import ASYNC, SYNC

HALF = {"share": 0.5, "devices": {"slowdown": {"kind": "uniform", "low": 2.0, "high": 4.0}}}
WORLD: dict[str, Any] = {
    "population.classes": {"phones": {"share": 0.5}, "tablets": HALF},
    "population.availability": {"kind": "bernoulli", "p": [0.3, 0.8], "slot_s": 1.0},
    "network.users.uplink_mbps": {"kind": "lognormal", "median": 6.0, "sigma": 0.5},
    "learning.partition": {"drawn": 5},
    "payload": "shadow",
    "rounds": 2,
    "check_in": {"every_s": 60, "within_s": 60},
    "selection": {"random": 10},
    "memory_limit_gb": 4,
    "protocols": ["fedavg"],
}
USERS = [*range(40), 399]


def drawn(users: int) -> list[Any]:
    """All that is drawn for some users of a population."""
    experiment = build(load(SYNC, {**WORLD, "population.users": users}))
    people, trainer = experiment.people, experiment.trainer
    numbers = people.slowdown, people.up_mbps, people.latency_s, people.cores
    return [
        (
            people.classes.of(user),
            [number.item(user) for number in numbers],
            [people.online.at(user, at * 10**9) for at in range(5)],
            trainer.parts[user].tolist(),
        )
        for user in USERS
    ]


def test_users_are_the_same_among_any_number_of_others() -> None:
    assert drawn(400) == drawn(5_000) == drawn(1_000_000)


@pytest.mark.ci
@pytest.mark.parametrize("protocol", ["fedavg", "fedbuff"])
def test_unseen_users_take_no_memory(protocol: str) -> None:
    """A million users more take less than 40 bytes each, arrays of all users in the selection included."""

    def peak(users: int) -> int:
        if protocol == "fedbuff":
            buffer = {"K": 10, "staleness_bound": 5, "concurrency": 20}
            changes = {"buffer": buffer, "payload": "shadow", "memory_limit_gb": 4, "protocols": [protocol]}
            scenario = load(ASYNC, {**changes, "population.users": users, "rounds": 2})
        else:
            always = {"population.availability": "always", "check_in": None}
            scenario = load(SYNC, {**WORLD, **always, "population.users": users})
        tracemalloc.start()
        try:
            run(scenario)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(100)  # imports and caches
    assert peak(1_100_000) - peak(100_000) < 40 * 10**6


def test_unseen_users_have_no_samples_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two real rounds of 10 out of 200,000 users look at the samples of fewer than 100."""
    looked, look = list[int](), Hands.__getitem__
    monkeypatch.setattr(Hands, "__getitem__", lambda hands, user: (looked.append(user), look(hands, user))[1])
    run(load(SYNC, {**WORLD, "payload": "real", "population.users": 200_000}))
    assert 10 <= len(set(looked)) < 100


def test_users_of_a_buffer_are_a_range() -> None:
    (trace,) = run(load(ASYNC, {"payload": "shadow", "protocols": ["fedbuff"]})).traces.values()
    assert next(row for row in trace if isinstance(row, Begin)).users == range(8)


def test_users_without_samples_are_refused_where_updates_are() -> None:
    """100 samples for 300 users: fedavg refuses an update without samples, and secagg adds zero."""
    data = {"kind": "synthetic", "train": 100, "test": 10}
    changes = {
        "learning.dataset": data,
        "population.users": 300,
        "payload": "shadow",
        "selection": {"random": 10},
    }
    few = {**changes, "privacy": {"T": 2, "D": 2}}
    with pytest.raises(ScenarioError, match=r"learning\.partition: 100 samples do not suffice for 300 users"):
        build(load(SYNC, {**few, "protocols": ["fedavg"]}))
    build(load(SYNC, {**few, "protocols": ["secagg"]}))
    build(load(SYNC, {**few, "protocols": ["fedavg"], "learning.partition": {"drawn": 5}}))
