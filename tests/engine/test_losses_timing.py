"""What a scripted loss around the upload costs, by hand to the nanosecond, and where the breakdown books it.

Three equal users, user 0 is the lost one. A byte takes 1000 ns up (8 Mbit/s) and 500 ns down; 10 ms away; a
message received costs 1 ms; users' work is ten times that of `plain.yaml`, the server's is plain. d = 650,
T = 1, U = 2, t = 2; no overlap. Times count from the start of the round; a deadline counts from the step that
sets its timer: that is the one that opens the stage.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simfl.runs.results import metrics
from simfl.trace.rows import (
    SERVER,
    Aborted,
    Aggregated,
    Begin,
    End,
    Ignored,
    Lost,
    Sent,
    Step,
    TimerSet,
    Trace,
)
from tests.engine.harness import SIX, SYNC_PROTOCOLS, of, run, script
from tests.engine.losses_by_hand import (
    ANSWERS,
    DELAY,
    HANDS,
    MS,
    OVERHEAD,
    RECOVERY_DEADLINE,
    UP,
    UPLOAD_DEADLINE,
    fedavg,
    lightsecagg,
    secagg,
    trained,
    up,
)

by_protocol = pytest.mark.parametrize("name", SYNC_PROTOCOLS)


def traced(name: str, when: str, detect: Any = "timeout", delay_s: float = 1.0, **more: Any) -> Trace:
    """The trace of a round in which user 0 is lost so at its upload."""
    lost = {"dropout": script((0, 0, "upload", when), delay_s=delay_s)} if when else {}
    changes = {"protocols": [name], "overlap": False, "detect": detect, **lost}
    (trace,) = run({**changes, **more}).traces.values()
    return trace


def ended(trace: Trace, index: int = 0) -> int:
    """When a round ended."""
    (end,) = of(trace, End, round=index)
    return int(end.at)


def waits(trace: Trace) -> dict[tuple[str, int], int]:
    """(phase, party) -> nanoseconds of the critical path spent waiting; the whole path adds up."""
    entry = metrics.rounds(trace)[0]
    assert sum(entry.critical.values()) == entry.end - entry.start
    return {(phase, party): ns for (phase, party, kind), ns in entry.critical.items() if kind == "wait"}


def by_phase(trace: Trace) -> dict[str, int]:
    """The critical path's share of each phase."""
    shares: Counter[str] = Counter()
    for (phase, _, _), ns in metrics.rounds(trace)[0].critical.items():
        shares[phase] += ns
    return dict(shares)


# --- nobody lost: what the hand calculations start from -----------------------------------------
@by_protocol
def test_an_undisturbed_round(name: str) -> None:
    hand, trace = HANDS[name](), traced(name, "")
    (timer,) = of(trace, TimerSet, name="upload")
    assert (timer.at, timer.fires) == (hand.opens, hand.opens + UPLOAD_DEADLINE)
    assert {m.sent for m in of(trace, Sent, kind="upload")} == {hand.sends}
    assert {m.arrived for m in of(trace, Sent, kind="upload")} == {hand.arrives}
    assert ended(trace) == hand.closes(3) + hand.recovered(3, ANSWERS[name])
    assert not waits(trace)


# --- noticed by the deadline --------------------------------------------------------------------
@by_protocol
@pytest.mark.parametrize("when", ["before_send", "mid_send"])
def test_by_timeout_a_lost_upload_costs_the_deadline(name: str, when: str) -> None:
    hand, trace = HANDS[name](), traced(name, when)
    (lost,) = of(trace, Lost)
    half = hand.size // 2 * UP if when == "mid_send" else 0
    assert (lost.phase, lost.at) == ("upload", hand.sends + half)
    # the two others were dealt with long before; from the deadline on there are two survivors
    deadline = hand.opens + UPLOAD_DEADLINE
    assert hand.closes(2) < deadline
    recovery = hand.recovered(2, min(2, ANSWERS[name]))
    assert ended(trace) == deadline + recovery
    # the timer was set as the offline phase ended, so the path jumps from the deadline back to that
    assert waits(trace) == {("upload", SERVER): UPLOAD_DEADLINE}
    phases = {"offline": hand.opens, "upload": UPLOAD_DEADLINE, "recovery": recovery}
    assert by_phase(trace) == {phase: ns for phase, ns in phases.items() if ns}


# --- noticed by the transport -------------------------------------------------------------------
@by_protocol
@pytest.mark.parametrize("when", ["before_send", "mid_send"])
def test_by_disconnect_a_lost_upload_costs_the_delay(name: str, when: str) -> None:
    hand, trace = HANDS[name](), traced(name, when, {"disconnect": DELAY / 1e9})
    half = hand.size // 2 * UP if when == "mid_send" else 0
    (lost,) = of(trace, Lost)
    assert lost.at == hand.sends + half
    noticed = hand.sends + half + DELAY
    assert hand.closes(2) < noticed < hand.opens + UPLOAD_DEADLINE
    recovery = hand.recovered(2, min(2, ANSWERS[name]))
    assert ended(trace) == noticed + recovery
    assert waits(trace) == {("upload", 0): DELAY}
    path = metrics.rounds(trace)[0].critical
    assert path.get(("upload", 0, "network"), 0) == half
    assert path["training", 0, "compute"] == trained() + OVERHEAD
    assert by_phase(trace)["recovery"] == recovery


@by_protocol
@pytest.mark.parametrize("when", ["before_send", "mid_send"])
def test_a_break_that_is_noticed_at_once_costs_nothing(name: str, when: str) -> None:
    hand, trace = HANDS[name](), traced(name, when, {"disconnect": 0.0})
    assert ended(trace) == hand.closes(2) + hand.recovered(2, min(2, ANSWERS[name]))
    assert not waits(trace)


# --- lost after the upload ----------------------------------------------------------------------
def test_after_its_upload_a_lost_user_costs_fedavg_nothing() -> None:
    hand = fedavg()
    for detect in ("timeout", {"disconnect": 3.0}, {"disconnect": 0.0}):
        trace = traced("fedavg", "after_send", detect)
        (lost,), (result,) = of(trace, Lost), of(trace, Aggregated)
        assert (lost.phase, lost.at) == ("recovery", hand.sends + hand.size * UP)
        assert [user for user, _, _ in result.members] == [0, 1, 2]
        assert ended(trace) == hand.closes(3) + hand.recovered(3, 0)
        assert not waits(trace)


@pytest.mark.parametrize("name", ["secagg", "lightsecagg"])
def test_a_loss_after_upload_costs_masked_rounds_nothing(name: str) -> None:
    hand = HANDS[name]()
    for detect in ("timeout", {"disconnect": 3.0}, {"disconnect": 0.0}):
        trace = traced(name, "after_send", detect)
        assert ended(trace) == hand.closes(3) + hand.recovered(3, 2)
        assert not waits(trace)


def test_a_loss_costs_its_answer_where_all_are_waited_for() -> None:
    hand, of_all = secagg(), {"deadlines.recovery": {"all": RECOVERY_DEADLINE / 1e9}}
    # The stage of recovery opens as the third upload is dealt with; the answers of the two others are there
    # long before its deadline, and their overhead with them.
    by_timeout = traced("secagg", "after_send", **of_all)
    assert ended(by_timeout) == hand.closes(3) + RECOVERY_DEADLINE + hand.recovered(3, 0)
    assert waits(by_timeout) == {("recovery", SERVER): RECOVERY_DEADLINE}
    assert by_phase(by_timeout)["recovery"] == RECOVERY_DEADLINE + hand.recovered(3, 0)

    by_disconnect = traced("secagg", "after_send", {"disconnect": DELAY / 1e9 / 2}, **of_all)
    gone = hand.sends + hand.size * UP + DELAY // 2  # its last bit has left
    assert hand.closes(3) < gone < hand.closes(3) + RECOVERY_DEADLINE
    assert ended(by_disconnect) == gone + hand.recovered(3, 0)
    assert waits(by_disconnect) == {("recovery", 0): DELAY // 2}
    assert metrics.rounds(by_disconnect)[0].critical["upload", 0, "network"] == hand.size * UP

    # not before its upload, 10 ms behind
    at_once = traced("secagg", "after_send", {"disconnect": 0.0}, **of_all)
    (notice,) = of(at_once, Step, call="gone")
    assert notice.ready == hand.arrives
    assert ended(at_once) == hand.closes(3) + hand.recovered(3, 2)
    assert not waits(at_once)


def test_lightsecagg_gives_up_a_round_short_of_U_answers() -> None:
    hand = lightsecagg()
    trace = traced("lightsecagg", "after_send", privacy={"T": 1, "D": 0, "U": 3})
    (abort,), (timer,) = of(trace, Aborted), of(trace, TimerSet, name="recovery")
    assert abort.reason == "recovery: 2 users answered, 3 needed"
    assert ended(trace) == timer.fires == timer.at + RECOVERY_DEADLINE
    assert waits(trace) == {("recovery", SERVER): RECOVERY_DEADLINE}
    assert timer.at < hand.closes(3)  # with U - T = 2 a share is half as long


# --- sent in full, and not counted --------------------------------------------------------------
@by_protocol
@pytest.mark.parametrize("detect", ["timeout", {"disconnect": DELAY / 1e9}])
def test_an_upload_that_is_not_counted_costs_its_way(name: str, detect: Any) -> None:
    hand, trace = HANDS[name](), traced(name, "not_counted", detect)
    (upload,), (lost,) = of(trace, Sent, kind="upload", sender=0), of(trace, Lost)
    assert (upload.bytes, upload.arrived) == (hand.size, hand.arrives)
    assert (lost.user, lost.phase, lost.at, trace[lost.cause]) == (0, "upload", hand.arrives, upload)
    noticed = hand.opens + UPLOAD_DEADLINE if detect == "timeout" else hand.arrives + DELAY
    assert ended(trace) == noticed + hand.recovered(2, min(2, ANSWERS[name]))
    path = metrics.rounds(trace)[0].critical
    if detect == "timeout":
        assert waits(trace) == {("upload", SERVER): UPLOAD_DEADLINE}
    else:
        assert waits(trace) == {("upload", 0): DELAY}
        assert path["upload", 0, "network"] == hand.arrives - hand.sends
    assert not of(trace, Step, party=SERVER, call="receive", what="upload", cause=trace.index(upload))
    assert not of(trace, Sent, kind="answer", sender=0)  # it is not asked: it is none of the survivors


def test_a_way_that_is_not_counted_takes_its_share_of_the_link() -> None:
    """The server's link takes 2 bytes a microsecond, of 20 users' uploads or of 10."""
    narrow = {"population.users": 20, "network.server": {"uplink_mbps": 1000.0, "downlink_mbps": 16.0}}
    for when, sending in (("before_send", 10), ("not_counted", 20)):
        trace = traced("fedavg", "", **narrow, dropout={"kind": "rate", "rate": 0.5, "when": when})
        (result,) = of(trace, Aggregated)
        assert len(result.members) == len(of(trace, Lost)) == 10
        longest = max(m.arrived - m.sent for m in of(trace, Sent, kind="upload"))
        assert longest - 10 * MS == pytest.approx(sending * fedavg().size * UP / 2, rel=0.01)


# --- late, not lost -----------------------------------------------------------------------------
@by_protocol
@pytest.mark.parametrize("detect", ["timeout", {"disconnect": 0.0}])
def test_an_upload_after_the_deadline_is_ignored(name: str, detect: Any) -> None:
    """It leaves 5 ms after the deadline, so it is there after 17.6 ms, when recovery has just begun."""
    hand = HANDS[name]()
    deadline = hand.opens + UPLOAD_DEADLINE
    late = deadline + 5 * MS
    trace = traced(name, "delay", detect, (late - hand.sends) / 1e9, rounds=2)
    (upload,) = of(trace, Sent, round=0, sender=0, kind="upload")
    assert (upload.sent, upload.arrived) == (late, late + up(hand.size))
    assert upload.bytes == upload.size == hand.size
    assert ended(trace) == deadline + hand.recovered(2, min(2, ANSWERS[name]))
    assert waits(trace) == {("upload", SERVER): UPLOAD_DEADLINE}
    (ignored,) = of(trace, Ignored, party=SERVER)
    assert (ignored.round, ignored.sender, ignored.at) == (0, 0, upload.arrived + OVERHEAD)
    assert not of(trace, Lost)


@by_protocol
def test_an_upload_delayed_within_the_deadline_costs_its_delay(name: str) -> None:
    hand, trace = HANDS[name](), traced(name, "delay", delay_s=2.0)
    # the two others were dealt with meanwhile
    closes = hand.arrives + 2000 * MS + OVERHEAD + hand.fold
    assert ended(trace) == closes + hand.recovered(3, ANSWERS[name])
    assert waits(trace) == {("upload", 0): 2000 * MS}


# --- bytes --------------------------------------------------------------------------------------
@by_protocol
def test_messages_sent_before_a_break_are_counted(name: str) -> None:
    hand = HANDS[name]()
    bytes_up = {
        when: metrics.rounds(traced(name, when, {"disconnect": 0.0}))[0].bytes_up
        for when in ("before_send", "mid_send", "after_send")
    }
    assert bytes_up["mid_send"] - bytes_up["before_send"] == hand.size // 2
    (broken,) = of(traced(name, "mid_send"), Sent, arrived=None, sender=0)
    assert (broken.kind, broken.bytes, broken.size) == ("upload", hand.size // 2, hand.size)
    assert bytes_up["after_send"] - bytes_up["before_send"] == hand.size


@by_protocol
def test_a_late_upload_is_counted_whole_in_its_own_round(name: str) -> None:
    hand = HANDS[name]()
    delay_s = (hand.opens + UPLOAD_DEADLINE + 5 * MS - hand.sends) / 1e9
    late = metrics.rounds(traced(name, "delay", delay_s=delay_s, rounds=2))[0].bytes_up
    never = metrics.rounds(traced(name, "before_send"))[0].bytes_up
    assert late - never == hand.size


def test_a_loss_after_its_round_is_still_booked(tmp_path: Path) -> None:
    """User 2's advertise takes 0.6 s for its half; the round is over after 0.59 s, the next one has begun."""
    (tmp_path / "up.csv").write_text("mbps\n8\n8\n0.0002\n8\n8\n8\n")
    uplink = {"file": str(tmp_path / "up.csv"), "column": "mbps", "assign": "modulo"}
    given = {"protocols": ["lightsecagg"], "rounds": 2, "deadlines.advertise": 0.5}
    lost = {"dropout": script((2, 0, "advertise", "mid_send"))}
    trace = run({**SIX, **given, **lost, "network.users.uplink_mbps": uplink}).traces["lightsecagg"]
    begins, (loss,) = of(trace, Begin), of(trace, Lost)
    assert begins[1].at < loss.at < of(trace, End)[1].at
    assert (loss.round, loss.user, loss.phase, loss.why) == (0, 2, "offline", "amid sending advertise")
