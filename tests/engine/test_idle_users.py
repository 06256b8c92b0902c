"""Idle users who are not connected: nobody follows their coming and going, and nothing differs by that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simfl.runs import users
from simfl.runs.build import build
from simfl.scenario.load import load
from simfl.trace.rows import SERVER, Lost, Presence, Sent, Step, Trace
from simfl.world.availability import OnlineTimes
from tests.engine.harness import ASYNC, days, of, run, sessions

NS = 10**9
SLOTS = {"kind": "bernoulli", "p": [0.3, 0.6], "slot_s": 0.05}
CURVE = {"kind": "diurnal", "low": 0.0, "high": 0.9, "peak_s": 0.2}
DAY = {**CURVE, "spread_s": 0.1, "slot_s": 0.03, "period_s": 1.0}
KINDS = {"bernoulli": SLOTS, "sessions": sessions(0.2, 0.3), "diurnal": DAY}
by_kind = pytest.mark.parametrize("kind", KINDS)


def fedbuff(availability: Any, users: int, **changes: Any) -> tuple[OnlineTimes, Trace]:
    """The days of so many users, and the trace of a run."""
    world = {"protocols": ["fedbuff"], "payload": "shadow", "population.users": users, **changes}
    world["population.availability"] = availability
    (trace,) = run(world, ASYNC).traces.values()
    return build(load(ASYNC, world)).people.online, trace


def began(trace: Trace) -> dict[str, int]:
    """Update -> when its user was picked."""
    return {step.about: step.ready for step in of(trace, Step, call="begin")}


@pytest.mark.ci(but=["diurnal"])
@by_kind
def test_picked_users_are_online(kind: str) -> None:
    everyone, trace = fedbuff(KINDS[kind], users=12, rounds=60)
    assert len(began(trace)) > 100
    for about, at in began(trace).items():
        assert everyone.at(int(about.split(".")[0]), at)[0]


@pytest.mark.ci(but=["diurnal"])
@by_kind
def test_users_that_leave_in_flight_are_lost_then(kind: str) -> None:
    everyone, trace = fedbuff(KINDS[kind], users=12, rounds=60, **{"buffer.concurrency": 12})
    lost = {row.about: row.at for row in of(trace, Lost)}
    left = {m.about: m.arrived for m in of(trace, Sent, kind="upload", to=SERVER) if m.arrived is not None}
    assert lost
    assert set(lost) | set(left) >= set(list(began(trace))[:-12])
    for about, at in began(trace).items():
        user = int(about.split(".")[0])
        now = 0
        for length, online in days(everyone, user):
            if not online and now > at:
                break
            now += length
        if about in lost:
            assert lost[about] == now
        elif about in left:
            assert left[about] - 10_000_000 <= now  # what has left still arrives, a latency later


@pytest.mark.ci(but=["sessions"])
@by_kind
def test_presence_rows_of_idle_users_match_their_schedules(kind: str) -> None:
    """A row of presence is a change at that time; who leaves was in flight."""
    everyone, trace = fedbuff(KINDS[kind], users=4, rounds=60)
    rows = of(trace, Presence)
    assert {row.online for row in rows} == {True, False}
    for row in rows:
        assert everyone.at(row.user, row.at)[0] == row.online
        assert row.at == 0 or everyone.at(row.user, row.at - 1)[0] != row.online
        taken = [s for s in of(trace, Step, what="upload") if s.about.startswith(f"{row.user}.")]
        at_server = any(step.ready <= row.at < step.end for step in taken)  # which has yet to read its upload
        assert row.online or at_server or of(trace, Lost, user=row.user, at=row.at)


@pytest.mark.ci
def test_each_of_the_online_is_picked_alike() -> None:
    """One at a time, and none waits in the buffer: the place of who is picked among all that are online."""
    one = {"buffer": {"K": 1, "staleness_bound": 0, "concurrency": 1, "return_s": 0.1}}
    everyone, trace = fedbuff(SLOTS, users=20, rounds=1000, **one)
    places = []
    for about, at in began(trace).items():
        here = [user for user in range(20) if everyone.at(user, at)[0]]
        places.append((here.index(int(about.split(".")[0])) + 0.5) / len(here))
    counts = np.histogram(places, bins=4, range=(0, 1))[0]
    assert abs(counts - len(places) / 4).max() < 5 * np.sqrt(len(places) * 3 / 16)
    assert abs(np.corrcoef(places[1:], places[:-1])[0, 1]) < 5 / np.sqrt(len(places))


@pytest.mark.parametrize("kind", [*KINDS, "trace"])
def test_unread_users_cost_nothing(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    looked: set[int] = set()
    make = users.UserPopulation.of

    def counting(*arguments: Any) -> users.UserPopulation:
        everybody = make(*arguments)
        everyone = everybody.online

        def look(user: int, now: int) -> Any:
            looked.add(user)
            return everyone.at(user, now)

        return replace(everybody, online=replace(everyone, at=look))

    monkeypatch.setattr(users.UserPopulation, "of", counting)
    (tmp_path / "x.csv").write_text("user,from_s,to_s\n" + "".join(f"{u},{u % 2},9\n" for u in range(3000)))
    kinds = {**KINDS, "trace": {"trace": str(tmp_path / "x.csv")}, "diurnal": {**DAY, "low": 0.5}}
    _, trace = fedbuff(kinds[kind], users=3000, rounds=10)
    assert len(looked) < 5 * len(began(trace)) < 600
    assert len(of(trace, Presence)) < 100
