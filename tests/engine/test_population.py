"""Users: devices, presence and planned losses, each drawn from its own stream."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.engine.population import Availability, Losses, Plan, draw
from simfl.protocols.registry import KEYED, PLAIN
from simfl.scenario import schema
from simfl.streams import Streams
from simfl.trace import Begin, Lost, Step
from tests.engine.harness import SIX, of, run, script


@pytest.mark.parametrize(
    ("distribution", "mean"),
    [
        (schema.Fixed(value=3.0), 3.0),
        (schema.Uniform(low=2.0, high=6.0), 4.0),
        (schema.LogNormal(median=2.0, sigma=0.5), 2 * np.exp(0.125)),
        (schema.Exponential(mean=5.0), 5.0),
    ],
)
def test_draws_have_the_distributions_mean(distribution: schema.Distribution, mean: float) -> None:
    values = draw(distribution, np.random.default_rng(0), 40_000)
    assert values.mean() == pytest.approx(mean, rel=0.03)
    assert (values > 0).all()


def test_a_users_presence_does_not_depend_on_how_many_there_are() -> None:
    spec = schema.Sessions(on_s=schema.Exponential(mean=2.0), off_s=schema.Exponential(mean=1.0))
    few, many = (Availability(spec, users, Streams(1)) for users in (3, 30))
    for user in range(3):
        assert list(islice(few.changes(user), 9)) == list(islice(many.changes(user), 9))


def test_sessions_alternate_and_start_in_the_stationary_state() -> None:
    spec = schema.Sessions(on_s=schema.Exponential(mean=3.0), off_s=schema.Fixed(value=1.0))
    everyone = Availability(spec, 2000, Streams(2))
    starts = [list(islice(everyone.changes(user), 4)) for user in range(2000)]
    assert all(a[1] != b[1] for changes in starts for a, b in pairwise(changes))
    assert np.mean([changes[0][1] for changes in starts]) == pytest.approx(0.75, abs=0.03)


def test_bernoulli_availability_is_drawn_by_round_with_each_users_own_probability() -> None:
    everyone = Availability(schema.Bernoulli(p=(0.2, 0.9)), 50, Streams(3))
    share = np.mean([everyone.in_round(index) for index in range(400)], axis=0)
    assert all(abs(p - 0.2) < 0.1 or abs(p - 0.9) < 0.1 for p in share)
    assert (everyone.in_round(7) == everyone.in_round(7)).all()


@given(st.floats(0, 1), st.integers(0, 5), st.sets(st.integers(0, 19), min_size=1))
def test_a_rate_loses_that_share_of_the_selected(rate: float, index: int, selected: set[int]) -> None:
    losses = Losses(schema.Rate(rate=rate), 20, Streams(4), KEYED)
    lost = losses.in_round(index, sorted(selected))
    assert lost.keys() <= selected
    assert len(lost) == round(rate * len(selected))


def test_a_list_of_rates_is_walked_through_round_by_round() -> None:
    losses = Losses(schema.Rate(rate=(0.1, 0.5)), 20, Streams(4), KEYED)
    assert [len(losses.in_round(index, range(20))) for index in range(4)] == [2, 10, 2, 10]


@pytest.mark.parametrize(
    ("at", "plain"),
    [("advertise", "training"), ("shares", "training"), ("upload", "upload"), ("recovery", None)],
)
def test_a_loss_at_a_point_that_a_protocol_lacks_happens_at_its_next(at: Any, plain: str | None) -> None:
    spec = schema.Script(losses=(schema.Loss(user=1, round=2, at=at, when="mid_send"),))
    keyed, short = (Losses(spec, 3, Streams(5), points) for points in (KEYED, PLAIN))
    assert keyed.in_round(2, [0, 1]) == {1: Plan(at, "mid_send")}
    assert short.in_round(2, [0, 1]) == ({1: Plan(plain, "mid_send")} if plain else {})
    assert not keyed.in_round(1, [0, 1])
    assert not keyed.in_round(2, [0])


@pytest.mark.parametrize(
    "world", [{"dropout": {"rate": 0.34}}, {"population.availability": {"bernoulli": 0.7}}]
)
def test_protocols_meet_the_same_users_and_the_same_losses(world: dict[str, Any]) -> None:
    result = run({**SIX, **world, "rounds": 5, "deadlines.upload": 1.0})
    seen = [
        (
            [begin.users for begin in of(trace, Begin)],
            [{row.user for row in of(trace, Lost, round=index)} for index in range(5)],
        )
        for trace in result.traces.values()
    ]
    assert seen[0] == seen[1] == seen[2]


def test_protocols_meet_the_same_devices() -> None:
    slow = {"population.devices.slowdown": {"kind": "lognormal", "median": 10.0, "sigma": 1.0}}
    result = run({**SIX, **slow})
    lasted = [
        {step.party: step.end - step.start for step in of(trace, Step, call="train")}
        for trace in result.traces.values()
    ]
    assert lasted[0] == lasted[1] == lasted[2]
    assert len(set(lasted[0].values())) == 6


def test_too_few_users_abort_a_round_with_the_numbers() -> None:
    nobody = {"population.availability": {"bernoulli": 0.0}}
    (entry,) = run(nobody).summary["protocols"]["fedavg"]["rounds"]
    assert (entry["status"], entry["reason"]) == ("aborted", "selection: 0 of 3 users available")
    assert entry["end_s"] == 5.0  # it waited for the first deadline before it asked again


def test_the_delay_of_a_script_reaches_its_plan() -> None:
    spec = schema.Script.model_validate(script((0, 0, "upload", "delay"), delay_s=0.25))
    assert Losses(spec, 1, Streams(0), PLAIN).in_round(0, [0]) == {0: Plan("upload", "delay", 250_000_000)}
