"""When users are online: each kind's draws against what they should be, and what never changes costs nothing.

A count of n coins of probability p lies within five of its standard deviations but for once in 1.7 million,
so a test of k counts fails on a right program for one seed in 1.7 million / k.
"""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.population.availability import Availability, online_probability
from simfl.random_streams import Streams
from simfl.results.trace import Begin, Presence
from simfl.scenario import schema
from tests.engine.harness import SIX, days, of, run

HOUR, DAY = 3600.0, 86400.0
NS = 10**9
SESSIONS = schema.Sessions(on_s=schema.Exponential(mean=2.0), off_s=schema.Exponential(mean=1.0))

COSINE = [1, 0.965926, 0.866025, 0.707107, 0.5, 0.258819, 0]
"""cos of 0, 15, ... 90 degrees: the first quarter of a day, hour by hour."""
BY_HOUR = [*COSINE, *(-c for c in COSINE[-2::-1]), *(-c for c in COSINE[1:]), *COSINE[-2:0:-1]]


def day(**values: float) -> schema.Diurnal:
    usual = {"low": 0.1, "high": 0.7, "peak_s": 0.0, "spread_s": 0.0, "slot_s": HOUR}
    return schema.Diurnal.model_validate({**usual, **values})


def slots(spec: Any, users: int, count: int, seed: int = 1) -> np.ndarray:
    """Boolean [users, slots]: who is online in the first slots."""
    everyone = Availability(spec, users, Streams(seed))
    states = [list(islice(days(everyone, user), count)) for user in range(users)]
    assert {length for changes in states for length, _ in changes} == {round(spec.slot_s * NS)}
    return np.array([[online for _, online in changes] for changes in states])


def surely(counts: np.ndarray, n: int, p: np.ndarray | float) -> bool:
    """Whether every count of n coins is within five standard deviations."""
    return bool((abs(counts - n * p) <= 5 * np.sqrt(n * p * (1 - np.asarray(p)))).all())


# --- sessions and bernoulli ---------------------------------------------------------------------
def test_sessions_alternate_and_start_in_the_stationary_state() -> None:
    spec = schema.Sessions(on_s=schema.Exponential(mean=3.0), off_s=schema.Fixed(value=1.0))
    everyone = Availability(spec, 2000, Streams(2))
    starts = [list(islice(days(everyone, user), 4)) for user in range(2000)]
    assert all(a[1] != b[1] for changes in starts for a, b in pairwise(changes))
    assert np.mean([changes[0][1] for changes in starts]) == pytest.approx(0.75, abs=0.03)


def test_bernoulli_availability_is_drawn_by_round_with_each_users_own_probability() -> None:
    everyone = Availability(schema.Bernoulli(p=(0.2, 0.9)), 50, Streams(3))
    share = np.mean([everyone.in_round(index) for index in range(400)], axis=0)
    assert all(abs(p - 0.2) < 0.1 or abs(p - 0.9) < 0.1 for p in share)
    assert (everyone.in_round(7) == everyone.in_round(7)).all()


def test_bernoulli_slots_are_coins_of_their_own() -> None:
    seen = slots(schema.Bernoulli(p=0.3, slot_s=60.0), users=40, count=500)
    assert surely(seen.sum(axis=1), 500, 0.3)  # each user
    assert surely(seen.sum(axis=0), 40, 0.3)  # each slot
    assert surely((seen[:, 1:] & seen[:, :-1]).sum(axis=1), 499, 0.09)  # none depends on the one before


def test_slots_hold_in_rounds_too_if_the_scenario_gives_them() -> None:
    """A round takes 40 ms; with slots of 1000 s everyone keeps the state that it began with."""
    coins: dict[str, Any] = {"kind": "bernoulli", "p": 0.5, "slot_s": 1000.0}
    (trace,) = run(
        {**SIX, "protocols": ["fedavg"], "rounds": 5, "population.availability": coins}
    ).traces.values()
    cohorts = {begin.users for begin in of(trace, Begin)}
    away = {row.user for row in of(trace, Presence, online=False, at=0)}
    assert cohorts == {tuple(user for user in range(6) if user not in away)}
    assert 0 < len(away) < 6


# --- diurnal ------------------------------------------------------------------------------------
@pytest.mark.parametrize("hour", range(24))
def test_the_curve_is_a_cosine_from_its_peak(hour: int) -> None:
    spec = day(peak_s=5 * HOUR)
    expected = 0.4 + 0.3 * BY_HOUR[hour]
    for at in (hour + 5, hour + 5 + 24, hour + 5 - 24, 5 - hour):
        assert online_probability(spec, at * HOUR) == pytest.approx(expected, abs=1e-6)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e6), st.floats(1, 1e6), st.floats(-1e6, 1e6))
def test_the_curve_stays_between_low_and_high(
    a: float, b: float, peak: float, period: float, at: float
) -> None:
    spec = day(low=min(a, b), high=max(a, b), peak_s=peak, period_s=period, slot_s=period / 2)
    assert spec.low - 1e-12 <= online_probability(spec, at) <= spec.high + 1e-12
    assert online_probability(spec, peak) == pytest.approx(spec.high)
    assert online_probability(spec, peak + period / 2) == pytest.approx(spec.low)


def test_users_are_online_as_often_as_the_curve_says() -> None:
    seen = slots(day(), users=2000, count=48)
    expected = 0.4 + 0.3 * np.array(BY_HOUR * 2)
    assert surely(seen.sum(axis=0), 2000, expected)


def test_a_slot_and_a_period_need_not_be_an_hour_of_a_day() -> None:
    seen = slots(day(low=0.0, high=1.0, peak_s=10.0, period_s=40.0, slot_s=10.0), users=500, count=8)
    assert (seen[:, 1::4]).all()  # at 10 and 50 s: the peak
    assert not (seen[:, 3::4]).any()  # at 30 and 70 s: half a period later
    assert surely(seen[:, 0::2].sum(axis=0), 500, 0.5)


def test_time_zones_are_normal_with_their_spread() -> None:
    """E cos(x - 2 pi Z / P) = cos(x) exp(-(2 pi s / P)^2 / 2), the characteristic function of a normal Z."""
    spread_s = 4 * HOUR
    seen = slots(day(low=0.0, high=1.0, spread_s=spread_s), users=2000, count=24)
    damped = np.exp(-((2 * np.pi * spread_s / DAY) ** 2) / 2)
    assert 0.5 < damped < 0.7
    assert surely(seen.sum(axis=0), 2000, (1 + damped * np.array(BY_HOUR)) / 2)


def test_a_users_time_zone_stays() -> None:
    """The hour of a user's peak, from its first hundred days and from its second, each within 0.1 h or so."""

    def peak_hours(days: np.ndarray) -> np.ndarray:
        share = days.mean(axis=1)
        turns = np.exp(2j * np.pi * np.arange(24) / 24)
        peaks: np.ndarray = np.angle(share @ turns) * 24 / (2 * np.pi)
        return peaks

    seen = slots(day(low=0.0, high=1.0, spread_s=3 * HOUR), users=60, count=24 * 200).reshape(60, 200, 24)
    first, second = peak_hours(seen[:, :100]), peak_hours(seen[:, 100:])
    assert abs(first - second).max() < 1
    assert 3 * (1 - 5 / np.sqrt(120)) < np.std(first) < 3 * (1 + 5 / np.sqrt(120))


# --- traces -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([], [(0, False)]),
        ([(0.0, 5.0)], [(5, True), (0, False)]),
        ([(2.0, 5.0)], [(2, False), (3, True), (0, False)]),
        ([(0.0, 5.0), (7.0, 8.0)], [(5, True), (2, False), (1, True), (0, False)]),
        ([(0.0, 5.0), (5.0, 8.0)], [(5, True), (3, True), (0, False)]),  # they touch: never offline between
        ([(1.0, 5.0), (5.0, 6.0), (9.0, 10.0)],
         [(1, False), (4, True), (1, True), (3, False), (1, True), (0, False)]),
    ],
)  # fmt: skip
def test_a_trace_is_followed(intervals: list[tuple[float, float]], expected: list[tuple[int, bool]]) -> None:
    everyone = Availability(schema.Trace(file="x"), 2, Streams(0), {1: intervals} if intervals else {})
    assert list(days(everyone, 1)) == [(length * NS, online) for length, online in expected]
    assert list(days(everyone, 0)) == [(0, False)]


# --- what they have in common -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("spec", "timed", "ever_online"),
    [
        (schema.Always(), False, 9),
        (schema.Bernoulli(p=0.5), False, 9),
        (schema.Bernoulli(p=0.0), False, 0),
        (schema.Bernoulli(p=0.5, slot_s=1.0), True, 9),
        (schema.Bernoulli(p=0.0, slot_s=1.0), True, 0),
        (SESSIONS, True, 9),
        (day(), True, 9),
        (day(low=0.0, high=0.0), True, 0),
        (schema.Trace(file="x"), True, 2),
    ],
)
def test_what_a_kind_is(spec: Any, timed: bool, ever_online: int) -> None:
    everyone = Availability(spec, 9, Streams(0), {3: [(0.0, 1.0)], 5: [(0.0, 1.0)]})
    assert (everyone.timed, everyone.ever_online) == (timed, ever_online)
    if timed or isinstance(spec, schema.Always):
        assert everyone.in_round(0).all()


def test_of_a_list_of_probabilities_those_who_drew_zero_never_come() -> None:
    everyone = Availability(schema.Bernoulli(p=(0.0, 0.5), slot_s=1.0), 100, Streams(0))
    never = [user for user in range(100) if list(islice(days(everyone, user), 2)) == [(0, False)]]
    assert everyone.ever_online == 100 - len(never)
    assert 20 < len(never) < 80


@pytest.mark.parametrize(
    ("spec", "state"),
    [
        (schema.Bernoulli(p=0.0, slot_s=1.0), False),
        (schema.Bernoulli(p=1.0, slot_s=1.0), True),
        (day(low=0.0, high=0.0), False),
        (day(low=1.0, high=1.0), True),
    ],
)
def test_a_presence_that_never_changes_costs_no_events(spec: Any, state: bool) -> None:
    assert list(days(Availability(spec, 1, Streams(0)), 0)) == [(0, state)]


DRAWN = pytest.mark.parametrize(
    "spec",
    [SESSIONS, schema.Bernoulli(p=(0.1, 0.5, 0.9), slot_s=1.0), day(spread_s=HOUR)],
    ids=lambda spec: spec.kind,
)


@DRAWN
@given(times_ns=st.lists(st.integers(0, 100 * NS), max_size=20))
def test_a_users_days_are_the_same_whenever_one_looks(spec: Any, times_ns: list[int]) -> None:
    everyone = Availability(spec, 2, Streams(1))
    for at in times_ns:
        until, online = 0, False
        listed = days(Availability(spec, 2, Streams(1)), 1)
        while until <= at:
            length, online = next(listed)
            until += length
        assert everyone.at(1, at) == (online, until)


@DRAWN
def test_a_users_presence_does_not_depend_on_how_many_there_are(spec: Any) -> None:
    few, many = (Availability(spec, users, Streams(1)) for users in (3, 30))
    for user in range(3):
        assert list(islice(days(few, user), 9)) == list(islice(days(many, user), 9))
