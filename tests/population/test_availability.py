"""When users are online: each kind's draws against what they should be, and what never changes costs nothing.

A count of n coins of probability p lies within five of its standard deviations but for once in 1.7 million,
so a test of k counts fails on a right program for one seed in 1.7 million / k.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.blocks import Exponential, Fixed
from simfl.errors import RunFailed, ScenarioError
from simfl.experiment.build import build
from simfl.learning import partition
from simfl.population import availability
from simfl.population.availability import (
    Always,
    Bernoulli,
    ByData,
    Diurnal,
    Sessions,
    Trace,
    UserStates,
)
from simfl.population.holdings import Share, shares
from simfl.population.numbers import entries_of
from simfl.random_streams import Streams
from simfl.results.trace import Begin, Presence
from simfl.scenario.load import load
from tests.engine.harness import SIX, SYNC, days, of, run
from tests.sizes import examples

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
    """Boolean [users, slots]: who is online in the first slots."""
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
def test_a_trace_is_followed(
    intervals: list[tuple[float, float]], expected: list[tuple[int, bool]], tmp_path: Path
) -> None:
    everyone = Trace(file=csv(tmp_path, {1: intervals})).times(2, Streams(0))
    assert list(days(everyone, 1)) == [(length * NS, online) for length, online in expected]
    assert list(days(everyone, 0)) == [(0, False)]


PERIODS = st.integers(1, 40)
WINDOWS = st.lists(st.integers(0, 40), max_size=8)
"""Ends of windows, in turn: two that are equal are a window without length."""


@settings(max_examples=examples(200))
@given(
    entries=st.lists(st.tuples(PERIODS, WINDOWS), min_size=1, max_size=4),
    own=st.booleans(),
    assign=st.sampled_from([None, "modulo", "draw"]),
    times=st.lists(st.integers(0, 400), min_size=1, max_size=20),
    users=st.integers(1, 9),
)
def test_wrapping_is_that_of_brute_force(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[int, list[int]]],
    own: bool,
    assign: Any,
    times: list[int],
    users: int,
) -> None:
    """Second by second. Each entry has a period of its own, or all have the first one's."""
    listed = {}
    for number, (period, ends) in enumerate(entries):
        at = sorted(min(end, period if own else entries[0][0]) for end in ends)
        windows = list(zip(at[::2], at[1::2], strict=False))
        listed[number] = windows if assign else [(a, b) for a, b in windows if a < b]
    periods = [period if own else entries[0][0] for period, _ in entries]
    users = users if assign else max(users, len(entries))
    file = csv(tmp_path_factory.mktemp("wrap"), listed, periods if own else None)
    if not any(listed.values()) and assign:
        return  # no line, so no entry
    spec = Trace(file=file, assign=assign, period_s=None if own else float(periods[0]))
    everyone = spec.times(users, Streams(1))
    there = [number for number, windows in listed.items() if windows]
    found = entries_of(assign or "modulo", len(there), users, Streams(1)) if assign else range(users)
    whose = [there[place] if assign else place for place in found]

    def online(user: int, second: int) -> bool:
        windows = listed.get(whose[user], [])
        return bool(windows) and any(a <= second % periods[whose[user]] < b for a, b in windows)

    ever = [any(online(user, second) for second in range(41)) for user in range(users)]
    assert everyone.ever_online is not None
    assert everyone.ever_online.tolist() == ever
    for user in range(users):
        for second in times:
            state, until = everyone.at(user, second * NS)
            assert state == online(user, second)
            assert until > second * NS
            if until == availability.FOR_EVER:
                assert {online(user, second + later) for later in range(81)} == {state}
            else:
                assert until % NS == 0
                assert {online(user, later) for later in range(second, until // NS)} == {state}
                assert state or online(user, until // NS)  # nobody is looked at for nothing


def test_many_users_share_the_entries_of_a_trace(tmp_path: Path) -> None:
    file = csv(tmp_path, {7: [(0, 5)], 10**17: [(2, 3)], 3: [(4, 4)]}, {7: 10, 10**17: 4, 3: 9})
    everyone = Trace(file=file, assign="modulo").times(7, Streams(1))
    assert everyone.ever_online is not None
    assert everyone.ever_online.tolist() == [False, True, True] * 2 + [False]
    assert [everyone.at(user, 12 * NS) for user in range(3)] == [
        (False, availability.FOR_EVER), (True, 15 * NS), (False, 14 * NS)
    ]  # fmt: skip
    assert everyone.at(4, 5 * NS) == (False, 10 * NS)
    (tmp_path / "none.csv").write_text("user,from_s,to_s\n")
    with pytest.raises(ScenarioError, match="no entries below the header"):
        Trace(file=str(tmp_path / "none.csv"), assign="draw").times(7, Streams(1))


# --- by what users hold -------------------------------------------------------------------------
HELD = np.array([[4, 0, 0, 0], [0, 2, 0, 0], [0, 1, 1, 6], [0, 0, 0, 1], [0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("by", "low", "high", "power", "p"),
    [
        ("more_data", 0, 1, 1, [4 / 8, 2 / 8, 1, 1 / 8, 0]),
        ("more_data", 0, 1, 0.5, [(4 / 8) ** 0.5, (2 / 8) ** 0.5, 1, (1 / 8) ** 0.5, 0]),
        ("less_data", 0, 1, 2, [1 / 4**2, 1 / 2**2, 1 / 8**2, 1, 0]),
        ("least_label", 0.9, 1, 1, [0.9, 0.1 / 3 + 0.9, 0.1 / 3 + 0.9, 1, 0.9]),
        ("labels", 0.8, 1, 1, [0.2 / 4 + 0.8, 0.2 / 4 + 0.8, 0.2 * 3 / 4 + 0.8, 0.2 / 4 + 0.8, 0.8]),
    ],
)
def test_what_a_user_holds_decides_how_often_it_is_there(
    by: Any, low: float, high: float, power: float, p: list[float]
) -> None:
    spec = ByData(by=by, low=low, high=high, power=float(power))
    drawn = spec.times_of(5, Streams(1), lambda: HELD).by_round
    assert drawn is not None
    count = np.sum([drawn(index) for index in range(4000)], axis=0)
    assert surely(count, 4000, np.array(p))
    slots = ByData(by=by, low=low, high=high, power=float(power), slot_s=1.0)
    everyone = slots.times_of(5, Streams(1), lambda: HELD)
    count = np.array([sum(everyone.at(user, t * NS)[0] for t in range(2000)) for user in range(5)])
    assert surely(count, 2000, np.array(p))
    assert everyone.ever_online is not None
    assert everyone.ever_online.tolist() == [x > 0 for x in p]


def test_users_who_hold_nothing_have_no_share() -> None:
    for by in get_args(Share):
        assert shares(by, np.zeros((3, 2), np.int64)).tolist() == [0, 0, 0]
        assert shares(by, np.array([[5]])).tolist() == [0.0 if by == "least_label" else 1.0]


HOLDERS = """
from simfl.population.availability import Availability, OnlineTimes


class Holders(Availability):
    least: int = 0

    def times(self, users, streams):
        return OnlineTimes()

    def times_of(self, users, streams, holdings):
        return OnlineTimes(ever_online=holdings().sum(axis=1) >= self.least)
"""


def test_a_model_of_your_own_may_ask_what_users_hold(tmp_path: Path) -> None:
    (tmp_path / "holders.py").write_text(HOLDERS)
    own = {"module": f"{tmp_path}/holders.py:Holders", "least": 500}
    study = build(load(SYNC, {"population.availability": own, "learning.partition": {"dirichlet": 0.3}}))
    held = study.partitions["fedavg"].sum(axis=1)
    assert study.people.online.ever_online is not None
    assert study.people.online.ever_online.tolist() == (held >= 500).tolist()
    assert len({*study.people.online.ever_online.tolist()}) == 2


COMING = {"kind": "by_data", "by": "labels", "low": 0.0, "high": 1.0}


def test_users_with_more_labels_take_part_more_often() -> None:
    """Eight users of a Dirichlet partition in 40 rounds: each is in as many as its labels make likely."""
    result = run(
        {
            **SIX, "protocols": ["fedavg"], "rounds": 40, "payload": "shadow",
            "population.availability": COMING, "learning.partition": {"dirichlet": 0.1},
        }
    )  # fmt: skip
    scenario = result.scenario
    held = build(scenario).partitions["fedavg"]
    (trace,) = result.traces.values()
    count = np.bincount([user for begin in of(trace, Begin) for user in begin.users], minlength=6)
    p = (held > 0).sum(axis=1) / held.shape[1]
    assert len(set(p)) > 2
    assert surely(count, 40, p)


def test_two_partitions_are_refused_where_what_is_held_decides() -> None:
    iid = {"protocol": "fedavg", "partition": "iid"}
    entries = {"a": iid, "b": {"protocol": "fedavg", "partition": {"dirichlet": 1.0}}}
    with pytest.raises(ScenarioError, match=r"population\.availability: depends on what users hold, so all"):
        build(load({**SYNC, "protocols": entries}, {"population.availability": COMING}))
    build(load({**SYNC, "protocols": {"a": iid, "b": iid}}, {"population.availability": COMING}))


@pytest.mark.parametrize("kind", ["always", {"bernoulli": 0.5}, COMING])
def test_holdings_are_counted_only_where_they_are_asked_for(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    monkeypatch.setattr(partition, "label_counts", lambda *given: counted.append(given) or HELD[:3])
    build(load(SYNC, {"population.availability": kind}))
    assert len(counted) == (kind is COMING)


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
def test_what_a_kind_is(spec: Any, changes: str, ever_online: int, tmp_path: Path) -> None:
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

    assert seen() == [(0, False)]
    assert seen((2.0, True), (1.0, False)) == [(2 * NS, True), (NS, False), (0, False)]
    assert seen((2.0, False), (math.inf, True)) == [(2 * NS, False), (0, True)]
    with pytest.raises(
        RunFailed, match=r"availability Listed, user 0: a state lasts 0.0 s: it must be above"
    ):
        seen((1.0, True), (0.0, False))


def test_nobodys_states_are_made_before_somebody_looks() -> None:
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
