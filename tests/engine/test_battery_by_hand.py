"""Batteries of runs whose every nanosecond and joule is worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simfl.trace.rows import Begin, Lost, Presence, Step
from tests.engine.harness import (
    ASYNC,
    ASYNC_PROTOCOLS,
    SESSIONS,
    SYNC,
    of,
    online,
    run,
    sessions,
)
from tests.engine.test_battery import MS, J, battery, battery_of, check, finished

# --- by hand ------------------------------------------------------------------------------------------
ONE = {"population.users": 1, "rounds": 2}
DOWN = 500 * 2608  # ns of the model's transfer
STARTS = DOWN + 11 * MS  # of the training, after 10 ms of latency and 1 ms of overhead
BEFORE_TRAINING = (
    2608 * 10**9 + 1_200_000 * DOWN  # the model
    + 600_000 * 11 * MS  # the tail, which lasts beyond that
    + 2_000_000 * MS  # the overhead
    + 1_000 * STARTS  # standby
)  # fmt: skip


def test_a_device_runs_empty_at_the_nanosecond(tmp_path: Path) -> None:
    left = 2 * MS  # it trains so long, with its radio in the tail
    level = BEFORE_TRAINING + (2_000_000 + 600_000 + 1_000) * left + 7
    capacity = round(level / J * J)
    back_ns, charger = 300 * MS, 20_000
    # what is missing at the charger's power: so it is plugged in 50 ms later
    energy = battery(
        capacity_j=level / J, base_w=0.001, charger_w=0.02, comes_back_at=charger * back_ns / level,
        charging={"trace": str(tmp_path / "online.csv")},
    )  # fmt: skip
    gone = STARTS + left
    online(tmp_path, {0: [((gone + 50 * MS) / 1e9, 1e6)]}, 1)
    trace = run({**ONE, "population.energy": energy, "deadlines.upload": 0.5}).traces["fedavg"]
    lost, *_ = of(trace, Lost)
    assert (lost.at, lost.why, lost.phase) == (gone, "ran empty", "training")
    cut, *_ = of(trace, Step, call="train")
    assert (cut.start, cut.end, cut.left > 0) == (STARTS, gone, True)
    away, here, *_ = of(trace, Presence)
    assert (away.at, away.online, here.online) == (gone, False, True)
    missing = round(charger * back_ns / level * capacity) - (7 + capacity - level)
    assert here.at == gone + 50 * MS - (-missing // charger)
    assert of(trace, Begin)[-1].users == (0,)


def test_standby_alone_empties_an_unfollowed_device() -> None:
    energy = battery(capacity_j=1.0, base_w=1.0, charger_w=0.0, comes_back_at=1.0)
    energy |= {"cpu_w": 0.0, "radio": None}
    changes = {"population.energy": energy, "rounds": 40, "protocols": ["fedavg"], "selection": {"random": 1}}
    trace = run(changes).traces["fedavg"]
    begins = of(trace, Begin)
    assert {len(row.users) for row in begins if row.at < 10**9} == {1}
    assert {len(row.users) for row in begins if row.at >= 10**9} == {0}
    assert [row.at for row in of(trace, Presence)] in ([], [10**9])  # of the one who took part, if any


def test_a_full_battery_takes_no_more() -> None:
    session = finished({"population.energy": battery(charger_w=50.0, level=0.9999)}, SYNC, "fedavg")
    b = battery_of(session, 0)
    assert b.level == b.store.capacity
    assert b.charged < b.store.charger * session.env.now


def test_the_charger_alone_may_be_too_weak() -> None:
    energy = battery(capacity_j=0.05, charger_w=0.5, comes_back_at=0.9)
    (trace,) = run({**ONE, "rounds": 6, "population.energy": energy}).traces.values()
    assert len(of(trace, Lost, why="ran empty")) == 6  # though it is plugged in


@pytest.mark.parametrize("name", ASYNC_PROTOCOLS)
def test_a_run_whose_devices_are_empty_for_ever_ends(name: str) -> None:
    energy = battery(capacity_j=0.1, charger_w=0.0, base_w=0.0)
    world = {"population.energy": energy, "population.availability": SESSIONS, "rounds": 500}
    session = finished(world, ASYNC, name)
    assert of(session.trace, Lost, why="ran empty")
    assert session.env.now < 1000 * 10**9
    check(session)


@pytest.mark.parametrize("changes", [{"charger_w": 0.0}, {"charging": "never"}], ids=["none", "unplugged"])
def test_a_run_whose_devices_empty_at_rest_ends(changes: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "never.csv").write_text("user,from_s,to_s\n")
    if "charging" in changes:
        changes = {"charging": {"trace": str(tmp_path / "never.csv")}}
    energy = battery(capacity_j=30.0, level=1e-9, base_w=0.001, **changes)
    world = {"population.energy": energy, "population.availability": sessions(0.2, 2.0)}
    session = finished(world, ASYNC, "fedbuff")
    assert session.env.now < 1000 * 10**9
