"""Times at which users are online: each kind's draws against its distribution; steady states cost nothing.

A count of n coins of probability p lies within five of its standard deviations but for once in 1.7 million,
so a test of k counts fails on a right program for one seed in 1.7 million / k.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.config.blocks import Exponential, Fixed
from simfl.random_streams import Streams
from simfl.trace.rows import Begin, Presence
from simfl.world import availability
from simfl.world.availability import Always, Bernoulli, ByData, Diurnal, Sessions, Trace, UserStates
from tests.engine.harness import SIX, days, of, run

HOUR, DAY = 3600.0, 86400.0
NS = 10**9
SESSIONS = Sessions(on_s=Exponential(mean=2.0), off_s=Exponential(mean=1.0))

COSINE = [1, 0.965926, 0.866025, 0.707107, 0.5, 0.258819, 0]
"""cos of 0, 15, ... 90 degrees: the first quarter of a day, hour by hour."""
BY_HOUR = [*COSINE, *(-c for c in COSINE[-2::-1]), *(-c for c in COSINE[1:]), *COSINE[-2:0:-1]]


def csv(
    folder: Path,
    windows: Mapping[int, Sequence[tuple[float, float]]],
    periods: Sequence[float] | Mapping[int, float] | None = None,
) -> str:
    """A trace's file: entry -> its windows, and its period."""
    lines = [
        f"{entry},{a},{b}" + (f",{periods[entry]}" if periods else "")
        for entry, listed in windows.items()
        for a, b in listed
    ]
    header = "user,from_s,to_s" + (",period_s" if periods else "")
    (folder / "online.csv").write_text("\n".join([header, *lines]))
    return str(folder / "online.csv")


def day(**values: float) -> Diurnal:
    usual = {"low": 0.1, "high": 0.7, "peak_s": 0.0, "spread_s": 0.0, "slot_s": HOUR}
    return Diurnal.model_validate({**usual, **values})


def slots(spec: Any, users: int, count: int, seed: int = 1) -> np.ndarray:
    """Boolean [users, slots]: the users that are online in the first slots."""
    everyone = spec.times(users, Streams(seed))
    states = [list(islice(days(everyone, user), count)) for user in range(users)]
    assert {length for changes in states for length, _ in changes} == {round(spec.slot_s * NS)}
    return np.array([[online for _, online in changes] for changes in states])


def surely(counts: np.ndarray, n: int, p: np.ndarray | float) -> bool:
    """Whether every count of n coins is within five standard deviations."""
    return bool((abs(counts - n * p) <= 5 * np.sqrt(n * p * (1 - np.asarray(p)))).all())


# --- sessions and bernoulli ---------------------------------------------------------------------
def test_sessions_alternate_and_start_in_the_stationary_state() -> None:
    spec = Sessions(on_s=Exponential(mean=3.0), off_s=Fixed(value=1.0))
    everyone = spec.times(2000, Streams(2))
    starts = [list(islice(days(everyone, user), 4)) for user in range(2000)]
    assert all(a[1] != b[1] for changes in starts for a, b in pairwise(changes))
    assert np.mean([changes[0][1] for changes in starts]) == pytest.approx(0.75, abs=0.03)


def test_bernoulli_availability_is_drawn_by_round() -> None:
    everyone = Bernoulli(p=(0.2, 0.9)).times(50, Streams(3))
    drawn = everyone.by_round
    assert drawn is not None
    share = np.mean([drawn(index) for index in range(400)], axis=0)
    assert all(abs(p - 0.2) < 0.1 or abs(p - 0.9) < 0.1 for p in share)
    assert (drawn(7) == drawn(7)).all()


def test_bernoulli_slots_are_coins_of_their_own() -> None:
    seen = slots(Bernoulli(p=0.3, slot_s=60.0), users=40, count=500)
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
        assert spec.probability(at * HOUR) == pytest.approx(expected, abs=1e-6)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e6), st.floats(1, 1e6), st.floats(-1e6, 1e6))
def test_the_curve_stays_between_low_and_high(
    a: float, b: float, peak: float, period: float, at: float
) -> None:
    spec = day(low=min(a, b), high=max(a, b), peak_s=peak, period_s=period, slot_s=period / 2)
    assert spec.low - 1e-12 <= spec.probability(at) <= spec.high + 1e-12
    assert spec.probability(peak) == pytest.approx(spec.high)
    assert spec.probability(peak + period / 2) == pytest.approx(spec.low)


@pytest.mark.ci
def test_users_are_online_as_often_as_the_curve_has_it() -> None:
    seen = slots(day(), users=2000, count=48)
    expected = 0.4 + 0.3 * np.array(BY_HOUR * 2)
    assert surely(seen.sum(axis=0), 2000, expected)


def test_a_slot_and_a_period_need_not_be_an_hour_of_a_day() -> None:
    seen = slots(day(low=0.0, high=1.0, peak_s=10.0, period_s=40.0, slot_s=10.0), users=500, count=8)
    assert (seen[:, 1::4]).all()  # at 10 and 50 s: the peak
    assert not (seen[:, 3::4]).any()  # at 30 and 70 s: half a period later
    assert surely(seen[:, 0::2].sum(axis=0), 500, 0.5)


@pytest.mark.ci
def test_time_zones_are_normal_with_their_spread() -> None:
    """E cos(x - 2 pi Z / P) = cos(x) exp(-(2 pi s / P)^2 / 2), the characteristic function of a normal Z."""
    spread_s = 4 * HOUR
    seen = slots(day(low=0.0, high=1.0, spread_s=spread_s), users=2000, count=24)
    damped = np.exp(-((2 * np.pi * spread_s / DAY) ** 2) / 2)
    assert 0.5 < damped < 0.7
    assert surely(seen.sum(axis=0), 2000, (1 + damped * np.array(BY_HOUR)) / 2)


@pytest.mark.ci
def test_a_users_time_zone_stays() -> None:
    """The hour of a user's peak, from its first fifty days and from its second, each within 0.2 h or so."""

    def peak_hours(days: np.ndarray) -> np.ndarray:
        share = days.mean(axis=1)
        turns = np.exp(2j * np.pi * np.arange(24) / 24)
        peaks: np.ndarray = np.angle(share @ turns) * 24 / (2 * np.pi)
        return peaks

    seen = slots(day(low=0.0, high=1.0, spread_s=3 * HOUR), users=30, count=24 * 100).reshape(30, 100, 24)
    first, second = peak_hours(seen[:, :50]), peak_hours(seen[:, 50:])
    assert abs(first - second).max() < 1
    assert 3 * (1 - 5 / np.sqrt(60)) < np.std(first) < 3 * (1 + 5 / np.sqrt(60))


# --- what they have in common -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("spec", "changes", "ever_online"),
    [
        (Always(), "never", 9),
        (ByData(by="labels", low=0.0, high=1.0), "by round", 0),
        (ByData(by="labels", low=0.1, high=1.0, slot_s=1.0), "with time", 9),
        (Bernoulli(p=0.5), "by round", 9),
        (Bernoulli(p=0.0), "by round", 0),
        (Bernoulli(p=0.5, slot_s=1.0), "with time", 9),
        (Bernoulli(p=0.0, slot_s=1.0), "with time", 0),
        (SESSIONS, "with time", 9),
        (day(), "with time", 9),
        (day(low=0.0, high=0.0), "with time", 0),
        (Trace(file=""), "with time", 2),
    ],
)
def test_kinds_of_availability_state_their_changes(
    spec: Any, changes: str, ever_online: int, tmp_path: Path
) -> None:
    if isinstance(spec, Trace):
        spec = Trace(file=csv(tmp_path, {3: [(0, 1)], 5: [(0, 1)]}))
    everyone = spec.times_of(9, Streams(0), lambda: np.zeros((9, 2), np.int64))
    ever = everyone.ever_online
    assert (spec.changes, 9 if ever is None else ever.sum()) == (changes, ever_online)
    assert (everyone.by_round is not None) == (changes == "by round")
    assert (everyone.at(0, 0) == (True, availability.FOR_EVER)) >= (changes != "with time")


def test_users_with_probability_zero_never_come() -> None:
    everyone = Bernoulli(p=(0.0, 0.5), slot_s=1.0).times(100, Streams(0))
    never = [user for user in range(100) if list(islice(days(everyone, user), 2)) == [(0, False)]]
    assert everyone.ever_online is not None
    assert np.flatnonzero(~everyone.ever_online).tolist() == never
    assert 20 < len(never) < 80


@pytest.mark.parametrize(
    ("spec", "state"),
    [
        (Bernoulli(p=0.0, slot_s=1.0), False),
        (Bernoulli(p=1.0, slot_s=1.0), True),
        (day(low=0.0, high=0.0), False),
        (day(low=1.0, high=1.0), True),
    ],
)
def test_a_presence_that_never_changes_costs_no_events(spec: Any, state: bool) -> None:
    assert list(days(spec.times(1, Streams(0)), 0)) == [(0, state)]


class Blinking(UserStates):
    on_s: float = 2.0

    def states(self, user: int, rng: np.random.Generator) -> Iterator[tuple[float, bool]]:
        yield float(rng.uniform(0, 5)), False
        while True:
            yield self.on_s, True
            yield 1.0, False


DRAWN = pytest.mark.parametrize(
    "spec",
    [SESSIONS, Bernoulli(p=(0.1, 0.5, 0.9), slot_s=1.0), day(spread_s=HOUR), Blinking()],
    ids=lambda spec: type(spec).__name__,
)


@DRAWN
@given(times_ns=st.lists(st.integers(0, 100 * NS), max_size=20))
def test_a_users_days_are_the_same_whenever_one_looks(spec: Any, times_ns: list[int]) -> None:
    everyone = spec.times(2, Streams(1))
    for at in times_ns:
        until, online = 0, False
        listed = days(spec.times(2, Streams(1)), 1)
        while until <= at:
            length, online = next(listed)
            until += length
        assert everyone.at(1, at) == (online, until)


@DRAWN
def test_a_users_presence_does_not_depend_on_how_many_there_are(spec: Any) -> None:
    few, many = (spec.times(users, Streams(1)) for users in (3, 30))
    for user in range(3):
        assert list(islice(days(few, user), 9)) == list(islice(days(many, user), 9))


# --- a generator for each user ------------------------------------------------------------------
class Listed(UserStates):
    listed: tuple[tuple[float, bool], ...]

    def states(self, user: int, rng: np.random.Generator) -> Iterator[tuple[float, bool]]:
        yield from self.listed


def test_states_follow_one_another_and_the_last_one_stays() -> None:
    def seen(*listed: tuple[float, bool]) -> list[tuple[int, bool]]:
        return list(days(Listed(listed=listed).times(1, Streams(0)), 0))

    assert seen((math.inf, False)) == [(0, False)]
    assert seen((2.0, True), (1.0, False), (math.inf, True)) == [(2 * NS, True), (NS, False), (0, True)]


def test_states_are_drawn_once_they_are_queried() -> None:
    asked: list[int] = []

    class Counted(Blinking):
        def states(self, user: int, rng: np.random.Generator) -> Iterator[tuple[float, bool]]:
            asked.append(user)
            return super().states(user, rng)

    everyone = Counted().times(10**9, Streams(1))
    assert asked == []
    everyone.at(7, 3 * NS)
    everyone.at(7, 9 * NS)
    assert asked == [7]
