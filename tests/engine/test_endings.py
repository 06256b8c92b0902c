"""Runs to which nobody comes, or comes any more, end with the reason."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from simfl.protocols.pairwise_masks import SecAggServer
from simfl.trace.rows import Presence
from tests.engine.harness import ASYNC, ASYNC_PROTOCOLS, SIX, SYNC, SYNC_PROTOCOLS, of, online, run

by_protocol = pytest.mark.parametrize("name", SYNC_PROTOCOLS)
by_detection = pytest.mark.parametrize("detect", ["timeout", {"disconnect": 0.05}], ids=["timeout", "told"])


def traced(folder: Path, name: str, times_s: dict[int, list[tuple[float, float]]], **more: Any) -> Any:
    """A run of three users; its result and its trace."""
    result = run({"protocols": [name], **online(folder, times_s, 3), **more})
    return result, result.traces[name]


NEVER: dict[str, Any] = {
    "bernoulli": {"bernoulli": 0.0},
    "bernoulli, in slots": {"kind": "bernoulli", "p": 0.0, "slot_s": 0.01},
    "diurnal": {"kind": "diurnal", "low": 0.0, "high": 0.0, "peak_s": 0.0, "spread_s": 0.0, "slot_s": 0.01},
    "trace": "trace",
}


@by_protocol
@pytest.mark.parametrize("availability", NEVER)
def test_rounds_without_users_end_with_the_reason(name: str, availability: str, tmp_path: Path) -> None:
    nobody = {"population.availability": NEVER[availability]}
    if availability == "trace":
        nobody = online(tmp_path, {user: [] for user in range(3)}, 3)
    began = time.monotonic()
    result = run({"protocols": [name], "rounds": 60, **nobody})
    assert time.monotonic() - began < 10
    rounds = result.summary["protocols"][name]["rounds"]
    assert {r["reason"] for r in rounds} == {"selection: 0 of 3 users available"}
    first = SYNC["deadlines"]["upload" if name == "fedavg" else "advertise"]
    assert [r["end_s"] for r in rounds] == [first * (k + 1) for k in range(60)]


@by_protocol
@by_detection
def test_rounds_continue_without_users_until_the_last(name: str, detect: Any, tmp_path: Path) -> None:
    times_s = {user: [(0.0, 0.15)] for user in range(3)}
    result, trace = traced(tmp_path, name, times_s, rounds=9, detect=detect)
    rounds = result.summary["protocols"][name]["rounds"]
    assert [r["index"] for r in rounds] == list(range(9))
    done = [r for r in rounds if r["status"] == "completed"]
    assert rounds[: len(done)] == done
    assert done
    assert all(r["end_s"] <= 0.2 for r in done)
    assert {r["reason"] for r in rounds[len(done) + 1 :]} == {"selection: 0 of 3 users available"}
    assert "0 users answered" in rounds[len(done)]["reason"]
    assert [row.online for row in of(trace, Presence)] == [False] * 3


@by_protocol
@pytest.mark.parametrize("horizon_s", [0.1, 7.0])
def test_rounds_stop_at_the_horizon(name: str, horizon_s: float, tmp_path: Path) -> None:
    times_s = {user: [(0.0, 0.15)] for user in range(3)}
    result, _ = traced(tmp_path, name, times_s, rounds=50, horizon_s=horizon_s)
    rounds = result.summary["protocols"][name]["rounds"]
    last = rounds[-1]
    assert last["reason"] == f"stopped at {horizon_s:.3f} s: the horizon of {horizon_s:g} s is reached"
    assert last["end_s"] == horizon_s
    assert last["selected"] == (0 if horizon_s > 6 else 3)
    assert len(rounds) < 50


@pytest.mark.ci(but=["3.0-told-fedbuff"])
@pytest.mark.parametrize("name", ASYNC_PROTOCOLS)
@by_detection
@pytest.mark.parametrize("first_s", [0.0, 3.0])
def test_a_buffer_stops_once_no_user_can_return(
    name: str, detect: Any, first_s: float, tmp_path: Path
) -> None:
    times_s = {user: [(first_s, first_s + 0.3 + user / 100)] for user in range(8)}
    changes = {"protocols": [name], "rounds": 50, "detect": detect, **online(tmp_path, times_s, 8)}
    result = run(changes, ASYNC)
    rounds = result.summary["protocols"][name]["rounds"]
    done = [r for r in rounds if r["status"] == "completed"]
    assert 3 <= len(done) < 50
    assert all(first_s < r["end_s"] < first_s + 0.5 and r["aggregate_exact"] for r in done)
    assert rounds[-1]["reason"].endswith("s: nothing left that could happen, 0 of 8 users online")


@pytest.mark.parametrize("name", ASYNC_PROTOCOLS)
def test_a_buffer_stops_at_the_horizon_though_users_would_come(name: str, tmp_path: Path) -> None:
    times_s = {user: [(10.0, 20.0)] for user in range(8)}
    changes = {"protocols": [name], "horizon_s": 5.0, **online(tmp_path, times_s, 8)}
    (entry,) = run(changes, ASYNC).summary["protocols"][name]["rounds"]
    assert (entry["end_s"], entry["reason"]) == (5.0, "stopped at 5.000 s: the horizon of 5 s is reached")


@pytest.mark.parametrize("name", ASYNC_PROTOCOLS)
def test_a_buffer_that_cannot_be_filled_stops(name: str, tmp_path: Path) -> None:
    """Two stay until 50 s, and a buffer takes three updates of different users."""
    times_s = {user: [(0.0, 50.0 if user < 2 else 0.1)] for user in range(8)}
    world = online(tmp_path, times_s, 8)
    rounds = run({"protocols": [name], "rounds": 50, **world}, ASYNC).summary["protocols"][name]["rounds"]
    assert rounds[-1]["reason"].startswith("stopped at 50.000 s: nothing left that could happen, 0 of 8")


def test_a_servers_memory_is_freed_with_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines of 3000 s are still to come when a round of a few seconds is over."""
    servers: list[ref[SecAggServer]] = []
    alive: list[int] = []
    begin = SecAggServer.__init__

    def noted(self: SecAggServer, *arguments: Any) -> None:
        alive.append(sum(server() is not None for server in servers))
        servers.append(ref(self))
        begin(self, *arguments)

    monkeypatch.setattr(SecAggServer, "__init__", noted)
    late = dict.fromkeys(("advertise", "shares", "upload", "recovery"), 3000.0)
    more = {"deadlines": late, "detect": {"disconnect": 0.1}, "rounds": 5, "payload": "shadow"}
    result = run({**SIX, "protocols": ["secagg"], **more})
    assert len(result.rounds["secagg"]) == 5
    assert max(alive) <= 1  # of all rounds before, at most the one that is just over
