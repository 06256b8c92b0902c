"""More users are chosen than uploads are wanted: the round ends with the K-th, and the rest is told so."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simfl.runs.folder.result import Result
from simfl.runs.results import metrics
from simfl.runs.results.summary import Summary
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
    Surplus,
    Trace,
)
from simfl.world.selection import Random
from tests.engine.harness import lines, of, online, run, script, sessions
from tests.sizes import examples

PROTOCOLS = ("fedavg", "secagg", "secagg_plus", "ccesa", "lightsecagg")
SLOW = {"kind": "lognormal", "median": 20.0, "sigma": 1.0}
WORLD: dict[str, Any] = {
    "population": {"users": 13, "devices": {"slowdown": SLOW, "training_noise": 0.3}},
    "privacy": {"T": 1, "D": 4, "U": 6},
    "rounds": 4,
    "deadlines": {"advertise": 2.0, "shares": 2.0, "upload": 5.0, "recovery": 2.0},
    "protocols": list(PROTOCOLS),
}
MS = 1_000_000


def over(factor: float | None, users: int = 10, kind: str = "random") -> dict[str, Any]:
    more = {} if factor is None else {"over": factor}
    return {"selection": {"kind": kind, "users": users, **more}}


@cache
def ran(factor: float | None, kind: str = "random") -> Result:
    return run({**WORLD, **over(factor, kind=kind), "payload": "shadow"})


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["random", "weighted_random"])
def test_over_one_is_as_if_there_was_none(kind: str) -> None:
    assert lines(ran(1.0, kind)) == lines(ran(None, kind))
    assert not any(of(trace, Surplus) for trace in ran(1.0, kind).traces.values())


def closing(trace: Trace, index: int, K: int) -> Step:
    """The step in which the server takes the K-th upload of a round."""
    steps = of(trace, Step, party=SERVER, call="receive", what="upload", round=index)
    late = {row.cause for row in of(trace, Ignored, party=SERVER, message="upload")}
    taken = [step for number, step in enumerate(trace) if step in steps and number not in late]
    assert len(taken) == K
    last: Step = taken[-1]
    return last


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["random", "weighted_random"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_upload_ends_with_the_kth(name: str, kind: str) -> None:
    result = ran(1.3, kind)
    trace = result.traces[name]
    for begin, told, end in zip(of(trace, Begin), of(trace, Surplus), of(trace, End), strict=True):
        last = closing(trace, begin.round, 10)
        assert (told.at, trace[told.cause], told.phase) == (last.end, last, "upload")
        (row,) = of(trace, Aggregated, round=begin.round)
        members = {user for user, _, _ in row.members}
        assert len(members) == 10
        assert members | set(told.users) == set(begin.users)
        assert {m.to for m in of(trace, Sent, round=begin.round, kind="stop")} == set(told.users)
        if name == "fedavg":
            assert end.at == last.end
    assert not of(trace, GaveUp)
    for entry, row in zip(metrics.rounds(trace), result.summary["protocols"][name]["rounds"], strict=True):
        assert sum(entry.critical.values()) == entry.end - entry.start
        assert len(entry.surplus) == row["surplus"] == row["selected"] - 10 > 0
        assert not any(entry.dropped.values())


@pytest.mark.ci
@settings(max_examples=examples(20), deadline=None)
@given(st.integers(2, 8), st.floats(1.0, 1.6), st.floats(0.0, 1.0), st.booleans(), st.sampled_from(PROTOCOLS))
def test_k_uploads_unless_fewer_came(K: int, factor: float, rate: float, told: bool, name: str) -> None:
    chosen = Random(users=K, over=factor).cohort(13)
    assume(3 <= chosen <= 13 and K >= 2)
    world = {
        **WORLD, **over(factor, K), "protocols": [name], "rounds": 2,
        "privacy": {"T": 1, "D": chosen - 2, "U": 2},
        "dropout": {"kind": "rate", "rate": rate, "at": "upload"},
        "detect": {"disconnect": 0.0} if told else "timeout",
    }  # fmt: skip
    result = run(world)
    trace = result.traces[name]
    for begin, entry in zip(of(trace, Begin), metrics.rounds(trace), strict=True):
        arrived = {m.sender for m in of(trace, Sent, round=begin.round, kind="upload") if m.arrived}
        counted = {user for user, _, _ in entry.members}
        if entry.reason is None:
            assert len(counted) == min(K, len(arrived))
        assert counted <= arrived
        if counted or name == "fedavg":
            losses = sum(entry.dropped.values())
            assert len(counted) + losses + len(entry.surplus) == entry.selected


# --- told to stop, by hand ----------------------------------------------------------------------
# Users 0, 1, 2 are fast; user 3 is late, and the round of K = 3 ends without it.
def late(delay_s: float, at: str = "training", **more: Any) -> Trace:
    """The trace of rounds of four, of whom user 3 waits this long at a point of the first."""
    world = {
        "population.users": 4, "rounds": 2, "deadlines.upload": 9.0, **over(1.33, 3),
        "dropout": script((3, 0, at, "delay"), delay_s=delay_s), **more,
    }  # fmt: skip
    return run(world).traces["fedavg"]


def stop_of(trace: Trace) -> Sent:
    (message,) = of(trace, Sent, kind="stop", round=0)
    assert isinstance(message, Sent)
    return message


def test_a_stopped_user_drops_its_waiting_work() -> None:
    trace = late(0.5)
    end, stop = of(trace, End)[0], stop_of(trace)
    assert (stop.to, stop.sent, stop.arrived) == (3, end.at, end.at + 10 * MS + 2000)
    assert not of(trace, Sent, sender=3, round=0)
    assert not of(trace, Step, party=3, call="submit", round=0)
    assert [row["surplus"] for row in summary(trace)] == [1, 0]  # in the second there are three to choose
    assert not of(trace, Lost)


def summary(trace: Trace) -> list[dict[str, int]]:
    return [{"surplus": len(r.surplus), "dropped": sum(r.dropped.values())} for r in metrics.rounds(trace)]


def test_a_training_ends_at_the_word() -> None:
    """The slowest of four trains when the word is there."""
    world = {
        "population": {"users": 4, "devices": {"slowdown": SLOW}}, "seed": 3, "rounds": 2, **over(1.33, 3),
        "learning.epochs": 20,
    }  # fmt: skip
    trace = run(world).traces["fedavg"]
    stop = stop_of(trace)
    (training,) = of(trace, Step, party=stop.to, call="train", round=0)
    assert training.end == stop.arrived
    assert training.left > 0
    assert not of(trace, Sent, sender=stop.to, round=0)


def test_a_stop_cuts_an_upload_during_its_sending() -> None:
    """2604 bytes at a byte a microsecond; the word comes 1 ms after the first of them left."""
    end, stop = of(late(0.5), End)[0], stop_of(late(0.5))
    (trained,) = of(late(0.5), Step, party=3, call="train", round=0)
    assert stop.arrived is not None
    begins = stop.arrived - MS  # what is handed over then leaves a step later
    trace = late((begins - trained.end) / 1e9)
    (cut,) = of(trace, Sent, sender=3, round=0)
    assert of(trace, End)[0] == end
    assert (cut.kind, cut.arrived, cut.size) == ("upload", None, 2604)
    assert cut.bytes == (stop.arrived - cut.sent) // 1000
    assert 0 < cut.bytes < 2604
    assert summary(trace)[0] == {"surplus": 1, "dropped": 0}


def test_an_upload_on_its_way_is_ignored_and_counted_once() -> None:
    ends = of(late(0.5), End)[0].at
    (trained,) = of(late(0.5), Step, party=3, call="train", round=0)
    trace = late((ends - trained.end + 2 * MS) / 1e9)  # all of it has left when the word comes
    stop, (upload,) = stop_of(trace), of(trace, Sent, sender=3, kind="upload", round=0)
    assert stop.arrived is not None
    assert upload.sent + 2604_000 < stop.arrived < upload.arrived
    (ignored,) = of(trace, Ignored, party=SERVER)
    assert (ignored.sender, ignored.round, ignored.why) == (3, 0, "late")
    assert summary(trace)[0] == {"surplus": 1, "dropped": 0}
    assert metrics.rounds(trace)[0].bytes_up == 4 * upload.size


def test_a_surplus_user_is_in_flight_until_its_stop_arrives() -> None:
    """The second round begins as the first ends, so without user 3; the third has it."""
    trace = late(0.5, rounds=3)
    first, second, third = of(trace, Begin)
    assert first.users == third.users == (0, 1, 2, 3)
    assert second.users == (0, 1, 2)
    assert second.at < stop_of(trace).arrived < third.at


def test_a_loss_before_the_end_counts_and_one_after_does_not(tmp_path: Path) -> None:
    world = {"population.users": 5, **over(1.6, 3), "deadlines.upload": 9.0}
    lost = script((3, 0, "training", "before_send"), (4, 0, "training", "delay"), delay_s=0.5)
    end = of(run({**world, "dropout": lost}).traces["fedavg"], End)[0].at
    leaves = online(tmp_path, {4: [(0.0, (end + 5 * MS) / 1e9)]}, 5)  # the word is on its way
    trace = run({**world, "dropout": lost, **leaves, "rounds": 2}).traces["fedavg"]
    assert [row.user for row in of(trace, Lost)] == [3, 4]
    assert [m.arrived for m in of(trace, Sent, kind="stop", round=0)] == [None, None]
    assert summary(trace)[0] == {"surplus": 1, "dropped": 1}


def test_the_deadline_is_the_longest_wait() -> None:
    lost = script(*((user, 0, "upload", "before_send") for user in (0, 1)))
    world = {"population.users": 4, **over(1.33, 3), "dropout": lost}
    trace = run(world).traces["fedavg"]
    (row,), (gave_up,) = of(trace, Aggregated), of(trace, GaveUp)
    assert [user for user, _, _ in row.members] == [2, 3]
    assert gave_up.users == (0, 1)
    assert of(trace, End)[0].at > 5_000 * MS
    assert not of(trace, Surplus)
    assert summary(trace) == [{"surplus": 0, "dropped": 2}]


# --- the same world -----------------------------------------------------------------------------
def test_no_other_draw_of_the_world_changes() -> None:
    few, many = (
        run({**WORLD, **over(factor), "population.availability": sessions(0.5, 0.1), "horizon_s": 2.0})
        for factor in (None, 1.3)
    )
    for name in PROTOCOLS:
        until = min(r.traces[name][-1].at for r in (few, many))
        seen = [[p for p in of(r.traces[name], Presence) if p.at < until] for r in (few, many)]
        assert seen[0] == seen[1] != []
        lasted = [
            {(s.party, s.round): s.end - s.start for s in of(r.traces[name], Step, call="train", left=0)}
            for r in (few, many)
        ]
        both = lasted[0].keys() & lasted[1].keys()
        assert len(both) >= 5
        assert {key: lasted[0][key] for key in both} == {key: lasted[1][key] for key in both}


@pytest.mark.ci
@pytest.mark.parametrize("workers", [0, 2])
def test_content_does_not_change_the_trace(workers: int) -> None:
    result = run({**WORLD, **over(1.3), "workers": workers})
    assert lines(result) == lines(ran(1.3))
    assert all(m.aggregate_exact for name in PROTOCOLS for m in result.measured[name])


# --- summaries ----------------------------------------------------------------------------------
@pytest.mark.ci
def test_summaries_without_over_selection_have_no_surplus() -> None:
    before, after = (ran(factor).summary["protocols"]["fedavg"] for factor in (None, 1.3))
    assert "surplus" not in before["rounds"][0]
    assert before["selection"] == {"kind": "random", "users": 10}
    assert after["selection"] == {"kind": "random", "users": 10, "over": 1.3}
    for result in (ran(None), ran(1.3)):
        again = Summary.model_validate_json(result.summarised(result.rounds).model_dump_json(by_alias=True))
        assert again == result.summarised(result.rounds)
    read = Summary.model_validate_json(ran(None).summarised(ran(None).rounds).model_dump_json(by_alias=True))
    assert {r.surplus for r in read.protocols["fedavg"].rounds} == {0}
