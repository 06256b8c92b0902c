"""Batteries: the law of conservation, and devices that run empty, are lost, and come back when charged."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.engine.battery import Battery
from simfl.engine.driver import drive
from simfl.engine.energy import Account
from simfl.engine.session import Session
from simfl.engine.setup import ClosedRound
from simfl.runs.build import build, make_clocks
from simfl.scenario.load import load
from simfl.trace.rows import SERVER, Begin, Lost, Presence, Sent, Spent, Step, Trace
from simfl.world.availability import FOR_EVER
from simfl.world.energy import Flow, Powers, Store
from tests.engine.harness import (
    ASYNC,
    ASYNC_PROTOCOLS,
    SESSIONS,
    SIX,
    SYNC,
    SYNC_PROTOCOLS,
    lines,
    of,
    run,
    sessions,
)
from tests.engine.test_energy import RADIO
from tests.fuzz import invariants
from tests.sizes import examples

MS = 10**6
J = 10**15


def battery(**changes: Any) -> dict[str, Any]:
    """The energy of a device with a battery that is full and always plugged in, unless changed."""
    full: dict[str, Any] = {
        "capacity_j": 100.0, "level": 1.0, "base_w": 0.01, "charger_w": 5.0, "charging": "always",
        "comes_back_at": 0.2,
    }  # fmt: skip
    return {"cpu_w": 2.0, "radio": RADIO, "battery": {**full, **changes}}


SMALL = {
    "capacity_j": 0.3, "level": {"kind": "uniform", "low": 0.1, "high": 1.0}, "charger_w": 3.0,
    "charging": sessions(0.1, 0.05),
}  # fmt: skip
"""Batteries that run empty and are charged again in a run of a second."""


def finished(overrides: dict[str, Any], base: dict[str, Any], name: str) -> Session:
    """A session that has been driven to its end."""

    async def publish(closed: ClosedRound) -> None:
        """Take no notice."""

    study = build(load(base, {**overrides, "protocols": [name], "payload": "shadow"}))
    session = study.session(name, make_clocks(study)(name))
    asyncio.run(drive(session, publish, lambda: None))
    return session


def battery_of(session: Session, user: int) -> Battery:
    """The battery of a user, up to now."""
    assert session.runtime.meter is not None
    account = session.runtime.meter.account(user)
    assert account is not None
    assert account.battery is not None
    return account.battery


# --- conservation -----------------------------------------------------------------------------------
def check(session: Session) -> None:
    """Level at the end = first level + charged - standby - what the rows say, exactly, for every user."""
    drawn = Counter[int]()
    for row in of(session.trace, Spent):
        drawn[row.party] += sum(fj for _, _, fj in row.amounts)
    for user in range(session.config.users):
        b = battery_of(session, user)
        assert 0 <= b.level <= b.store.capacity
        assert b.level == b.store.start(user) + b.charged - b.standby - drawn[user]
        assert 0 <= b.charged <= b.store.charger * session.env.now
        assert 0 <= b.standby <= b.store.base * session.env.now
    check_idle_while_empty(session.trace)


def check_idle_while_empty(trace: Trace) -> None:
    """A device does nothing from when it ran empty until it is back."""
    gaps: dict[int, list[tuple[int, int]]] = {}
    for lost in of(trace, Lost, why="ran empty"):
        back = (row.at for row in of(trace, Presence, user=lost.user, online=True) if row.at >= lost.at)
        gaps.setdefault(lost.user, []).append((lost.at, next(back, FOR_EVER)))
    for step in of(trace, Step):
        if step.end > step.start:
            assert all(step.end <= gone or back <= step.start for gone, back in gaps.get(step.party, ()))
    for sent in of(trace, Sent):
        if sent.to != SERVER and sent.arrived is not None:
            assert all(not gone < sent.arrived < back for gone, back in gaps.get(sent.to, ()))


CHARGING = ["always", sessions(0.1, 0.05), {"kind": "bernoulli", "p": 0.5, "slot_s": 0.03}]
BATTERIES = st.builds(
    battery,
    capacity_j=st.floats(0.05, 2.0),
    level=st.one_of(st.floats(0.01, 1.0), st.just({"kind": "uniform", "low": 0.05, "high": 1.0})),
    base_w=st.sampled_from([0.0, 0.005, 0.01]),
    charger_w=st.sampled_from([0.0, 0.5, 3.0, 50.0]),
    charging=st.sampled_from(CHARGING),
    comes_back_at=st.sampled_from([0.3, 0.5, 1.0]),
)
WORLDS = st.fixed_dictionaries({
    "population.energy": BATTERIES,
    "population.availability": st.sampled_from(["always", SESSIONS]),
    "dropout": st.sampled_from([{"kind": "none"}, {"rate": 0.3}]),
    "seed": st.integers(0, 2**32),
    "horizon_s": st.just(60.0),
})  # fmt: skip


@pytest.mark.ci
@settings(max_examples=examples(40), deadline=None)
@given(WORLDS, st.sampled_from(SYNC_PROTOCOLS))
def test_conservation_in_rounds(world: dict[str, Any], name: str) -> None:
    check(finished({**SIX, "rounds": 4, **world}, SYNC, name))


@pytest.mark.ci
@settings(max_examples=examples(40), deadline=None)
@given(WORLDS, st.sampled_from(ASYNC_PROTOCOLS))
def test_conservation_in_buffers(world: dict[str, Any], name: str) -> None:
    check(finished({"rounds": 6, **world}, ASYNC, name))


# --- one battery, against a nanosecond at a time ----------------------------------------------------
def plugged(changes: list[int], charger: int, base: int = 0) -> Flow:
    """A charger that is plugged in and out at these times, first out."""
    times = sorted(set(changes))

    def at(user: int, now: int) -> tuple[tuple[int, int], int]:
        after = bisect_right(times, now)
        return (charger * (after % 2), base), times[after] if after < len(times) else FOR_EVER

    return at


@settings(max_examples=examples(200))
@given(
    st.integers(0, 40), st.integers(1, 40), st.integers(0, 5), st.integers(0, 7), st.integers(0, 40),
    st.lists(st.integers(1, 60), max_size=4), st.lists(st.tuples(st.integers(1, 20), st.integers(0, 6))),
)  # fmt: skip
def test_a_battery_is_the_same_a_nanosecond_at_a_time(
    start: int, back: int, base: int, charger: int, more: int, changes: list[int], plan: list[tuple[int, int]]
) -> None:
    capacity = max(start, back) + more
    store = Store(capacity, back, base, charger, lambda user: start, plugged(changes, charger, base))
    quick, now = Battery(store, 0), 0
    level, on, charged, standby = start, True, 0, 0
    for ns, draws in plan:
        then = now
        while then < now + ns:
            then = quick.advance(then, now + ns, draws)
        for t in range(now, now + ns):
            gain = store.flow(0, t)[0][0]
            on = on and level + gain - draws - base >= 0
            net = gain - (draws + base) * on
            before, level = level, min(capacity, level + net)
            charged += level - before + (draws + base) * on
            standby += base * on
            on = on or (gain > 0 and level >= back)
        now += ns
        assert (quick.level, quick.is_on, quick.charged, quick.standby) == (level, on, charged, standby)


def test_more_than_the_level_is_paid_as_far_as_it_goes() -> None:
    one = Battery(Store(9, 1, 0, 0, lambda user: 7, plugged([], 0)), 0)
    assert (one.pay(4), one.is_on, one.pay(4), one.is_on, one.level) == (4, True, 3, False, 0)


def test_a_device_that_ran_empty_has_no_tail_when_it_is_back() -> None:
    store = Store(100, 20, 0, 10, lambda user: 5, plugged([10], 10))
    account = Account(Powers(0, tail=1, store=store), 0, "upload", Battery(store, 0))
    account.tail_until, account.tail_phase = 50, "upload"
    account.advance(50)  # empty at 5, plugged in at 10, back at 12
    assert account.spent == {("upload", "tail"): 5}


# --- common random numbers --------------------------------------------------------------------------------
@pytest.mark.ci(but=["rounds"])
@pytest.mark.parametrize("base", [SYNC, ASYNC], ids=["rounds", "buffers"])
def test_a_battery_that_lasts_changes_no_draw(base: dict[str, Any]) -> None:
    names = list(SYNC_PROTOCOLS if base is SYNC else ASYNC_PROTOCOLS)
    world = {"population.availability": SESSIONS, "dropout": {"rate": 0.2}, "payload": "shadow"}
    plain = run({**world, "protocols": names}, base).traces
    energy = battery(charging=SESSIONS, level={"kind": "uniform", "low": 0.5, "high": 1.0})
    for name, trace in run({**world, "protocols": names, "population.energy": energy}, base).traces.items():
        assert _changes(trace) == _changes(plain[name])


def _changes(trace: Trace) -> list[tuple[type, int, int]]:
    kinds = Presence | Lost | Begin
    return [(type(row), getattr(row, "user", SERVER), row.at) for row in trace if isinstance(row, kinds)]


def test_levels_and_charging_are_each_users_own() -> None:
    def drawn(users: int) -> Iterator[tuple[Any, ...]]:
        energy = battery(charging=SESSIONS, level={"kind": "uniform", "low": 0.1, "high": 1.0})
        store = load(SYNC, {"population.users": users, "population.energy": energy})
        study = build(store)
        s, online = study.scenario, study.people.online
        assert s.population.energy is not None
        made = s.population.energy.powers(users, study.streams).store
        assert made is not None
        for user in range(3):
            yield made.start(user), made.flow(user, 0), made.flow(user, 10**9), online.at(user, 0)

    assert list(drawn(3)) == list(drawn(9))
    assert len({start for start, *_ in drawn(3)}) == 3


def test_charging_has_separate_draws() -> None:
    changes = {"population.availability": SESSIONS, "population.energy": battery(charging=SESSIONS)}
    study = build(load(SYNC, changes))
    assert study.scenario.population.energy is not None
    store = study.scenario.population.energy.powers(3, study.streams).store
    assert store is not None
    assert [store.flow(u, 0)[1] for u in range(3)] != [study.people.online.at(u, 0)[1] for u in range(3)]


# --- the rest of a run ------------------------------------------------------------------------------------
@pytest.mark.ci(but=["rounds-shadow"])
@pytest.mark.parametrize("changes", [{"payload": "shadow"}, {"workers": 2}], ids=["shadow", "pooled"])
@pytest.mark.parametrize("base", [SYNC, ASYNC], ids=["rounds", "buffers"])
def test_batteries_are_the_same_however_content_is_made(
    base: dict[str, Any], changes: dict[str, Any]
) -> None:
    names = list(ASYNC_PROTOCOLS if base is ASYNC else SYNC_PROTOCOLS)
    given = {"population.energy": battery(**SMALL), "protocols": names}
    plain = run(given, base)
    assert any(of(trace, Lost, why="ran empty") for trace in plain.traces.values())
    assert lines(run({**given, **changes}, base)) == lines(plain)


def test_selection_takes_only_charged_devices() -> None:
    level = {"kind": "uniform", "low": 0.01, "high": 1.0}
    energy = battery(level=level, charger_w=0.0, capacity_j=1e5)
    changes = {"population.users": 40, "population.energy": energy, "rounds": 8}
    changes["selection"] = {"kind": "charged", "users": 5, "least": 0.5}
    session = finished(changes, SYNC, "fedavg")
    levels = np.array([battery_of(session, user).store.start(user) / (1e5 * J) for user in range(40)])
    chosen = {user for row in of(session.trace, Begin) for user in row.users}
    assert len(chosen) > 5
    assert chosen <= set(np.flatnonzero(levels >= 0.5))
    assert (levels < 0.5).sum() > 10


def test_idle_users_have_no_account() -> None:
    changes = {"population.users": 20_000, "population.energy": battery(charging=SESSIONS), "rounds": 3}
    session = finished({**changes, "learning.dataset": {"kind": "synthetic", "shape": [2], "classes": 2,
        "train": 20_000, "test": 4}}, ASYNC, "fedbuff")  # fmt: skip
    assert session.runtime.meter is not None
    assert len(session.runtime.meter._accounts) < 60


@pytest.mark.ci
@pytest.mark.parametrize("level", [1.0, {"kind": "uniform", "low": 0.01, "high": 0.3}], ids=["full", "low"])
@pytest.mark.parametrize("base", [SYNC, ASYNC], ids=["rounds", "buffers"])
def test_runs_with_batteries_keep_all_invariants(base: dict[str, Any], level: Any, tmp_path: Path) -> None:
    names = list(ASYNC_PROTOCOLS if base is ASYNC else SYNC_PROTOCOLS)
    energy = battery(**{**SMALL, "level": level, "base_w": 0.06, "charging": sessions(0.1, 0.4)})
    changes = {"population.energy": energy, "protocols": names, "rounds": 20, "seed": 8}
    if base is ASYNC:
        changes["buffer.concurrency"] = 8
    result = run(changes, base, out=tmp_path)
    assert any(of(trace, Lost, why="ran empty") for trace in result.traces.values())
    invariants.check(result, tmp_path)
