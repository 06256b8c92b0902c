"""Where no protocol keeps the guarantees, one message names the guarantee to relax and by how much."""

from __future__ import annotations

from typing import Any

import pytest

from simfl.errors import BadInput, ScenarioError
from simfl.scenario.fleet import Fleet
from simfl.studies.plan.evaluate import PlainSums, World
from simfl.studies.plan.search import plan
from simfl.studies.plan.settings import Choices, Refused
from tests.studies.plan.small import small


def refused(fleet: Fleet, name: str) -> Refused:
    """Return the refusal of a protocol before anything is compared."""
    world = World.of(fleet, fleet.seed)
    reason = Choices.of(fleet, world.experiment, PlainSums(world, fleet)).settings(name)
    assert isinstance(reason, Refused)
    return reason


@pytest.mark.ci
@pytest.mark.parametrize(("key", "value"), [("within_s", 0.001), ("user_mb", 0.001)])
def test_the_smallest_change_is_named_and_is_enough(key: str, value: float) -> None:
    given: dict[str, Any] = {"updates": 6, "protocols": ["secagg", "lightsecagg", "fedavg"]}
    with pytest.raises(ScenarioError) as wrong:
        plan(small(**given, **{key: value}))
    (problem,) = wrong.value.problems
    assert problem.path == key
    assert problem.message.count("no protocol keeps all guarantees") == 1
    new = float(problem.message.partition(f"write {key}: ")[2].split()[0])
    assert new > value
    best = plan(small(**given, **{key: new})).best
    assert best.name in problem.message


def test_too_many_updates_name_the_number_that_is_possible() -> None:
    """12 users of whom each is lost with 6 % before its upload: 12 updates fail, and fewer are enough."""
    one = refused(small(updates=12), "secagg")
    assert one.relaxed is not None
    assert one.relaxed.key == "updates"
    assert one.relaxed.factor == 12 / one.relaxed.value
    world = World.of(fleet := small(updates=int(one.relaxed.value)), 3)
    assert isinstance(Choices.of(fleet, world.experiment, PlainSums(world, fleet)).settings("secagg"), list)
    assert refused(small(updates=int(one.relaxed.value) + 1), "secagg").relaxed is not None


def test_too_many_colluders_name_the_number_that_is_possible() -> None:
    """Of 12 users 9 survive surely, so that 8 colluders are the most with T < N - D."""
    one = refused(small(collude=11, dropout={"rate": 0.25}), "secagg")
    assert one.relaxed is not None
    assert (one.relaxed.key, one.relaxed.value) == ("collude", 8)
    fleet = small(collude=8, dropout={"rate": 0.25})
    world = World.of(fleet, 3)
    assert isinstance(Choices.of(fleet, world.experiment, PlainSums(world, fleet)).settings("secagg"), list)


@pytest.mark.ci
def test_without_a_single_change_all_reasons_are_given() -> None:
    with pytest.raises(BadInput, match="no protocol keeps the guarantees: ccesa: promises nothing"):
        plan(small(protocols=["ccesa", "fedavg"]))
