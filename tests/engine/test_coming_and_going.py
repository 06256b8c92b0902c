"""Users who go offline in the middle of a transfer, and users who come back late.

Three equal users as in `plain.yaml`: a byte takes a microsecond up and half of one down, 10 ms away.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from simfl.trace.rows import (
    SERVER,
    Aggregated,
    Begin,
    End,
    GaveUp,
    Ignored,
    Lost,
    Presence,
    Sent,
    Step,
    Trace,
)
from tests.engine.harness import (
    ASYNC,
    ASYNC_PROTOCOLS,
    SIX,
    SYNC_PROTOCOLS,
    of,
    online,
    run,
    script,
)

MS = 1_000_000
LATENCY = 10 * MS
MODEL, UPLOAD = 2608, 2604
FOR_EVER_S = 1e6
ROOMY = {**SIX, "privacy": {"T": 1, "D": 4, "U": 2}, "rounds": 3, "deadlines.upload": 1.0}
"""Six users of whom two are enough."""

by_protocol = pytest.mark.parametrize("name", SYNC_PROTOCOLS)
by_detection = pytest.mark.parametrize(
    "detect", ["timeout", {"disconnect": 0.05}], ids=["timeout", "disconnect"]
)


def away(leaves_ns: int, returns_ns: int | None = None) -> list[tuple[float, float]]:
    """Online, then offline between two times, or for ever."""
    later = [(returns_ns / 1e9, FOR_EVER_S)] if returns_ns is not None else []
    return [(0.0, leaves_ns / 1e9), *later]


def traced(folder: Path, name: str, times_s: dict[int, list[tuple[float, float]]], **more: Any) -> Any:
    """A run of three users of whom some come and go; its result and its trace."""
    result = run({"protocols": [name], **online(folder, times_s, 3), **more})
    return result, result.traces[name]


# --- links that break in the middle of a transfer: rounds ----------------------------------------
@cache
def calm(name: str) -> Trace:
    return run({**ROOMY, "protocols": [name]}).traces[name]


def first_round_of(name: str, up: bool) -> list[Sent]:
    """User 0's messages of the first round of a calm run: each has the link for itself."""
    ends = (0, SERVER) if up else (SERVER, 0)
    return [m for m in of(calm(name), Sent, round=0) if (m.sender, m.to) == ends]


def started(message: Sent, up: bool) -> int:
    """When the first bit of a calm run's message left."""
    assert message.arrived is not None
    return message.arrived - LATENCY - message.size * MS // (1000 if up else 2000)


CUTS = [
    (name, up, k)
    for name, counts in {"fedavg": (1, 1), "secagg": (4, 5), "lightsecagg": (4, 5)}.items()
    for up, count in zip((True, False), counts, strict=True)
    for k in range(count)
]
"""Every message that a user sends or receives in a round."""

MISSED = {"model": "training", "inbox": "upload", "upload": "upload"} | dict.fromkeys(
    ("survivors", "answer"), "recovery"
)
"""The phase in which a user is missed whose link broke in such a message: by default in the offline phase."""


@pytest.mark.ci(but=["fedavg"])
@pytest.mark.parametrize(("name", "up", "k"), CUTS)
def test_a_round_survives_a_link_that_breaks_in_any_message(
    name: str, up: bool, k: int, tmp_path: Path
) -> None:
    messages = first_round_of(name, up)
    assert len(messages) == sum((name, up) == cut[:2] for cut in CUTS)
    message = messages[k]
    leaves = started(message, up) + message.size * MS // (2000 if up else 4000)
    returns = leaves + 60 * MS
    result = run({**ROOMY, "protocols": [name], **online(tmp_path, {0: away(leaves, returns)}, 6)})
    trace, rounds = result.traces[name], result.summary["protocols"][name]["rounds"]

    (lost,) = of(trace, Lost)
    assert (lost.user, lost.round, lost.why, lost.at) == (0, 0, "went offline", leaves)
    mine = [m for m in of(trace, Sent, kind=message.kind, round=0) if 0 in (m.sender, m.to)]
    (broken,) = mine  # told once, and never sent again
    assert (broken.sent, broken.arrived, broken.bytes) == (message.sent, None, message.size // 2)
    later = [m for m in of(trace, Sent) if 0 in (m.sender, m.to) and m.sent >= leaves and m.bytes]
    assert {m.round for m in later} <= {1, 2}  # nothing of the round that it was lost from
    assert all(m.sent >= returns for m in later)

    assert [r["status"] for r in rounds] == ["completed"] * 3
    assert all(r["aggregate_exact"] for r in rounds)
    members = [user for user, _, _ in of(trace, Aggregated, round=0)[0].members]
    assert members == [user for user in range(6) if user or message.kind in ("survivors", "answer")]
    missed = MISSED.get(message.kind, "offline")
    if message.kind == "model" and name != "fedavg":
        missed = "offline"  # the roster comes behind it
    assert {phase: count for phase, count in rounds[0]["dropped"].items() if count} == {missed: 1}
    assert rounds[2]["survivors"] == 6  # it is back


@pytest.mark.ci(but=["fedavg"])
@by_protocol
def test_messages_in_the_air_to_a_leaving_user_are_gone(name: str, tmp_path: Path) -> None:
    message = first_round_of(name, up=False)[0]
    assert message.arrived is not None
    leaves = message.arrived - LATENCY // 2
    times_s = {0: away(leaves, leaves + 60 * MS)}
    trace = run({**ROOMY, "protocols": [name], **online(tmp_path, times_s, 6)}).traces[name]
    (broken,) = of(trace, Sent, to=0, kind=message.kind, round=0)
    assert (broken.sent, broken.arrived, broken.bytes) == (message.sent, None, message.size)
    assert not of(trace, Step, party=0, round=0)
    assert [0 in row.users for row in of(trace, Begin)][-1]


@by_protocol
@by_detection
def test_leaving_with_the_upload_in_the_air_counts(name: str, detect: Any, tmp_path: Path) -> None:
    (upload,) = [m for m in first_round_of(name, up=True) if m.kind == "upload"]
    assert upload.arrived is not None
    leaves = online(tmp_path, {0: away(upload.arrived - LATENCY // 2)}, 6)
    result = run({**ROOMY, "rounds": 1, "protocols": [name], "detect": detect, **leaves})
    (entry,) = result.summary["protocols"][name]["rounds"]
    assert entry["survivors"] == entry["selected"] == 6
    assert entry["dropped"] == {"offline": 0, "training": 0, "upload": 0, "recovery": 1}
    assert entry["aggregate_exact"]
    assert upload in of(result.traces[name], Sent)


@by_protocol
def test_a_user_that_goes_offline_during_training_stops_there(name: str, tmp_path: Path) -> None:
    (train,) = of(calm(name), Step, call="train", party=0, round=0)
    leaves = (train.start + train.end) // 2
    result = run({**ROOMY, "protocols": [name], **online(tmp_path, {0: away(leaves, leaves + MS)}, 6)})
    trace = result.traces[name]
    (broken,) = of(trace, Step, call="train", party=0, round=0)
    assert (broken.start, broken.end, broken.left) == (train.start, leaves, train.end - leaves)
    (lost,) = of(trace, Lost)
    assert (lost.phase, lost.at) == ("training", leaves)
    assert [0 in row.users for row in of(trace, Begin)] == [True] * 3
    assert [r["survivors"] for r in result.summary["protocols"][name]["rounds"]] == [5, 6, 6]


# --- coming back late: rounds ---------------------------------------------------------------------
def test_a_new_connection_reveals_that_the_old_one_broke(tmp_path: Path) -> None:
    """Long before the transport would have noticed; the round does not wait for it."""
    leaves, returns = 20 * MS, 200 * MS
    for delay_s, expected in ((60.0, returns), (0.1, leaves + 100 * MS)):
        _, trace = traced(tmp_path, "fedavg", {0: away(leaves, returns)}, detect={"disconnect": delay_s})
        (gone,) = of(trace, Step, call="gone")
        assert gone.ready == expected
        assert of(trace, End)[0].at < expected + MS


def test_a_user_that_leaves_between_two_rounds_is_not_lost(tmp_path: Path) -> None:
    """User 2 leaves in the first round, so the second waits for a third user; then the others leave too."""
    times_s = {0: [(0.0, 1.0)], 1: [(0.0, 1.0)], 2: [(0.0, 0.02)]}
    here: dict[str, Any] = {"rounds": 2, "selection": {"random": 3}, "detect": {"disconnect": 0.0}}
    result, trace = traced(tmp_path, "fedavg", times_s, **here)
    first, second = result.summary["protocols"]["fedavg"]["rounds"]
    assert [row.user for row in of(trace, Lost)] == [2]
    assert (first["survivors"], sum(first["dropped"].values())) == (2, 1)
    assert (second["status"], second["reason"]) == ("aborted", "selection: 0 of 3 users available")
    assert [row.user for row in of(trace, Presence, online=False)] == [2, 0, 1]
    assert len(of(trace, Step, call="gone")) == 1


LATE = {
    **ROOMY,
    "rounds": 5,
    "deadlines.upload": 0.3,
    "dropout": script((0, 0, "upload", "delay"), delay_s=0.35),
}


@pytest.mark.ci(but=["fedavg"])
@by_protocol
def test_an_upload_that_is_late_is_lost_with_its_user(name: str, tmp_path: Path) -> None:
    """It is delayed beyond the deadline, but the user leaves for good before that."""
    changes = {**LATE, "protocols": [name]}
    late = run(changes)
    (upload,) = of(late.traces[name], Sent, kind="upload", sender=0, round=0)
    assert upload.sent > of(late.traces[name], End, round=0)[0].at
    gone = run({**changes, **online(tmp_path, {0: away(upload.sent - MS)}, 6)})
    trace, entry = gone.traces[name], gone.summary["protocols"][name]["rounds"][0]
    assert not of(trace, Sent, kind="upload", sender=0, round=0)
    assert [(row.user, row.round, row.why) for row in of(trace, Lost)] == [(0, 0, "went offline")]
    assert [row.users for row in of(trace, GaveUp, round=0)] == [(0,)]
    assert entry["dropped"] == {"offline": 0, "training": 0, "upload": 1, "recovery": 0}
    assert entry["survivors"] + 1 == entry["selected"] == 6


@pytest.mark.ci(but=["fedavg"])
@by_protocol
def test_a_late_upload_is_missed_at_the_deadline(name: str, tmp_path: Path) -> None:
    """Its user leaves for good while it is in the air: it is there, and thrown away."""
    changes = {**LATE, "protocols": [name]}
    (upload,) = of(run(changes).traces[name], Sent, kind="upload", sender=0, round=0)
    gone = run({**changes, **online(tmp_path, {0: away(upload.arrived - MS)}, 6)})
    entry = gone.summary["protocols"][name]["rounds"][0]
    assert upload in of(gone.traces[name], Sent)
    assert of(gone.traces[name], Ignored, sender=0, party=SERVER, round=0)
    assert entry["dropped"] == {"offline": 0, "training": 0, "upload": 1, "recovery": 0}


# --- buffers --------------------------------------------------------------------------------------
@cache
def calm_buffer(name: str) -> Trace:
    return run({"protocols": [name]}, ASYNC).traces[name]


def messages_of(name: str, up: bool) -> list[Sent]:
    """Of each kind the last of user 0's messages of a calm run, and the first that it sent."""
    ends = (0, SERVER) if up else (SERVER, 0)
    there = [m for m in of(calm_buffer(name), Sent) if (m.sender, m.to) == ends and m.arrived is not None]
    first, last = ({m.kind: m for m in listed} for listed in (reversed(there), there))
    return list(dict.fromkeys([*last.values(), *(first.values() if up else ())]))


@pytest.mark.ci(but=["fedbuff"])
@pytest.mark.parametrize("name", ASYNC_PROTOCOLS)
@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_a_buffer_survives_a_link_that_breaks_in_any_message(name: str, up: bool, tmp_path: Path) -> None:
    kinds = set[str]()
    for message in messages_of(name, up):
        leaves = started(message, up) + message.size * MS // (2000 if up else 4000)
        returns = leaves + 40 * MS
        times_s = {0: away(leaves, returns)}
        told = {"detect": {"disconnect": 60.0}}  # at the latest as it returns
        result = run({"protocols": [name], "rounds": 12, **told, **online(tmp_path, times_s, 8)}, ASYNC)
        trace = result.traces[name]
        kinds.add(message.kind)

        copies = [m for m in of(trace, Sent, kind=message.kind, sent=message.sent) if 0 in (m.sender, m.to)]
        broken = copies[0]
        assert (broken.arrived, broken.bytes) == (None, message.size // 2)
        lost = [row.at for row in of(trace, Lost)]
        if up and lost:  # the cycle is over, and what was not sent is gone
            assert len(copies) == 1
        else:  # it waits in the mailbox, or on the device, and is sent again from its first byte
            assert [m.bytes for m in copies] == [message.size // 2, message.size]
            assert copies[1].arrived >= returns + message.size * MS // (1000 if up else 2000) + LATENCY
        assert lost in ([], [leaves])
        mine = [m for m in of(trace, Sent) if 0 in (m.sender, m.to) and m.arrived is not None]
        assert not [m for m in mine if m.to == 0 and leaves < m.arrived < returns]

        rounds = result.summary["protocols"][name]["rounds"]
        assert [r["status"] for r in rounds] == ["completed"] * 12
        assert all(r["aggregate_exact"] for r in rounds)
        again = [s.about for s in of(trace, Step, call="begin") if s.start >= returns]
        assert any(about.startswith("0.") for about in again)
    expected = {
        ("fedbuff", True): {"upload"},
        ("fedbuff", False): {"model"},
        ("lightsecagg_async", True): {"advertise", "shares", "upload", "answer"},
        ("lightsecagg_async", False): {"invite", "roster", "begin", "inbox", "recover"},
    }
    assert kinds >= expected[name, up]


def test_messages_to_a_user_away_from_the_start_wait(tmp_path: Path) -> None:
    """It never had a link before it left."""
    world = {"protocols": ["lightsecagg_async"], "rounds": 1, **online(tmp_path, {7: [(0.05, 1e6)]}, 8)}
    trace = run(world, ASYNC).traces["lightsecagg_async"]
    (invite,) = of(trace, Sent, kind="invite", to=7)
    assert invite.sent < 50 * MS < 50 * MS + LATENCY < invite.arrived


@pytest.mark.ci(but=["fedbuff"])
@pytest.mark.parametrize("name", ASYNC_PROTOCOLS)
def test_a_buffered_upload_after_its_deadline_is_ignored(name: str) -> None:
    changes = {"protocols": [name], "rounds": 40, "deadlines.upload": 0.3}
    lost = script((0, 0, "upload", "delay"), (1, 0, "upload", "delay"), delay_s=0.35)
    trace = run({**changes, "dropout": lost}, ASYNC).traces[name]
    assert not of(trace, Lost)
    for about in ("0.0", "1.0"):
        user = int(about[0])
        (given_up,) = of(trace, GaveUp, about=about)
        (late,) = of(trace, Sent, kind="upload", about=about)
        assert given_up.at < late.sent < late.arrived
        (ignored,) = of(trace, Ignored, party=SERVER, about=about)
        assert (ignored.sender, ignored.message) == (user, "upload")
        begun = [s for s in of(trace, Step, call="begin") if s.about.startswith(f"{user}.")]
        assert [s.start > late.arrived for s in begun][:2] == [False, True]
        used = {about for row in of(trace, Aggregated) for _, about, _ in row.members}
        assert about not in used
        assert f"{user}.1" in used


@pytest.mark.ci(but=["fedbuff"])
@pytest.mark.parametrize("name", ASYNC_PROTOCOLS)
def test_a_buffered_upload_delayed_in_time_is_staler(name: str) -> None:
    changes = {"protocols": [name], "rounds": 12, "buffer.staleness_bound": 12}
    lost = script((0, 0, "upload", "delay"), delay_s=0.1)
    taus = [
        tau
        for world in ({}, {"dropout": lost})
        for row in of(run({**changes, **world}, ASYNC).traces[name], Aggregated)
        for _, about, tau in row.members
        if about == "0.0"
    ]
    punctual, delayed = taus
    assert delayed > punctual
