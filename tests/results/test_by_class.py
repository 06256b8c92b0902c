"""A run by class of users: what it adds up to."""

from typing import Any

import pytest

from simfl.results import metrics
from simfl.results.by_class import ClassSummary
from simfl.results.summary import Summary
from simfl.results.trace import PHASES, SERVER
from tests.engine.harness import ASYNC, SYNC, run

CLASSES = {
    "slow": {"share": 0.4, "devices": {"slowdown": 90.0}, "dropout": {"rate": 0.5}},
    "fast": {"share": 0.6},
}
IN_ROUNDS: dict[str, Any] = {
    "population.users": 10,
    "privacy": {"T": 1, "D": 5},
    "rounds": 3,
    "payload": "shadow",
    "population.classes": CLASSES,
    "detect": {"disconnect": 0.05},
    "protocols": ["fedavg", "secagg", "lightsecagg"],
}
BUFFERED: dict[str, Any] = {"payload": "shadow", "population.classes": CLASSES}


@pytest.mark.parametrize(("world", "base"), [(IN_ROUNDS, SYNC), (BUFFERED, ASYNC)])
def test_classes_add_up_to_the_run(world: dict[str, Any], base: dict[str, Any]) -> None:
    result = run(world, base)
    users = result.scenario.population.users
    for name, p in Summary.model_validate_json(
        result.summarised().model_dump_json(by_alias=True)
    ).protocols.items():
        assert p.classes is not None
        assert set(p.classes) == {"slow", "fast"}
        every = p.classes.values()
        assert sum(c.users for c in every) == users
        assert sum(c.invited for c in every) == sum(r.selected for r in p.rounds)
        assert sum(c.aggregated for c in every) == sum(r.survivors for r in p.rounds)
        trace = result.traces[name]
        path = metrics.run_path(trace, metrics.rounds(trace))
        for phase in PHASES:
            assert sum(c.lost[phase] for c in every) == sum(r.dropped[phase] for r in p.rounds)
            by_hand = sum(ns for (of, party, _), ns in path.items() if of == phase and party != SERVER)
            assert sum(c.waited_s[phase] for c in every) == pytest.approx(by_hand / 1e9)


def test_the_slow_lose_and_hold_up_the_rest() -> None:
    for p in run(IN_ROUNDS, SYNC).summarised().protocols.values():
        assert p.classes is not None
        slow, fast = p.classes["slow"], p.classes["fast"]
        assert sum(fast.lost.values()) == 0
        assert sum(slow.lost.values()) == 3 * round(0.5 * slow.users)
        assert sum(slow.waited_s.values()) > sum(fast.waited_s.values())


def test_a_run_without_classes_has_none() -> None:
    assert run({"payload": "shadow"}, SYNC).summarised().protocols["fedavg"].classes is None


def test_parts_of_a_hand_made_run() -> None:
    rounds = [
        metrics.Round(0, 0, 10, invited=(0, 1, 2), members=((0, "", 0), (2, "", 0))),
        metrics.Round(1, 10, 30, invited=(1, 2), members=((2, "", 0),)),
    ]
    rounds[0].missed[1, "upload"] += 1
    rounds[1].missed[1, "recovery"] += 1
    path = metrics.Path(
        {("upload", 1, "network"): 8, ("upload", SERVER, "wait"): 2, ("training", 2, "compute"): 20}
    )
    found = ClassSummary.of_all(rounds, path, {"a": 1, "b": 2}, lambda user: "b" if user else "a")
    assert (found["a"].invited, found["a"].aggregated) == (1, 1)
    assert (found["b"].invited, found["b"].aggregated) == (4, 2)
    assert found["b"].lost == {"offline": 0, "training": 0, "upload": 1, "recovery": 1}
    assert found["b"].waited_s == {"offline": 0.0, "training": 2e-8, "upload": 8e-9, "recovery": 0.0}
    assert sum(found["a"].waited_s.values()) == 0
