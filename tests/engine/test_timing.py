"""Virtual time by hand: rounds of three equal users, pinned to the nanosecond.

`plain.yaml` gives each kind of work whole nanoseconds; the links move a byte a microsecond up and two
down. d = 650 parameters; users are ten times slower than the profile's machine.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from simfl.dataplane.work import Segment
from simfl.engine.clocks import ModelledClock
from simfl.runs.build import build
from simfl.scenario.load import load
from simfl.trace.rows import SERVER, Aggregated, End, GaveUp, Ignored, Lost, Sent, Step, TimerSet
from tests.engine.harness import SIX, SYNC, SYNC_PROTOCOLS, edges, of, run, script

MS = 1_000_000
OVERHEAD, LATENCY, SLOW, D = MS, 10 * MS, 10, 650
DOWN = MS // 2000
"""Nanoseconds a byte."""
UP = MS // 1000
MODEL, UPLOAD = 4 * D + 8, 4 * D + 4
MODEL_THERE = MODEL * DOWN + LATENCY + OVERHEAD


@cache
def training() -> int:
    trainer = build(load(SYNC)).trainer
    work = trainer.work(0)
    return SLOW * (work["softmax_mac"] * 1 + work["softmax_step"] * 100_000)


def averaging(users: int) -> int:
    """real_mac for the sum and the division, apply_element."""
    return users * D * 4 + D * 4 + D * 6


def end_of(overrides: dict[str, Any]) -> int:
    (trace,) = run(overrides).traces.values()
    (end,) = of(trace, End)
    return int(end.at)


# --- nobody lost --------------------------------------------------------------------------------
def undisturbed(users: int = 3) -> int:
    return MODEL_THERE + training() + UPLOAD * UP + LATENCY + users * OVERHEAD + averaging(users)


def test_a_fedavg_round_is_the_sum_of_its_parts() -> None:
    assert end_of({}) == undisturbed()


def test_a_message_costs_latency_rate_and_overhead() -> None:
    (trace,) = run().traces.values()
    received = [(m, s) for s in of(trace, Step, call="receive", what="model") for m in [trace[s.cause]]]
    assert len(received) == 3
    for message, step in received:
        assert step.end - message.sent == MODEL * DOWN + LATENCY + OVERHEAD
    first = min(of(trace, Step, party=SERVER, what="upload"), key=lambda s: s.end)
    assert first.end - trace[first.cause].sent == UPLOAD * UP + LATENCY + OVERHEAD


def test_a_lightsecagg_round_is_the_sum_of_its_parts() -> None:
    N, T, U = 3, 1, 2
    m = D + 1  # a coded share, U - T = 1
    sealed, plain = 2 * (4 * m + 16), 2 * 4 * m
    keys = SLOW * 30_000
    share = SLOW * (2 * 40_000 + 2 * m + N * U * (m + 100) + 2 * T * m + 2 * 1500 + plain)
    hold = SLOW * (2 * 1500 + sealed)
    mask = SLOW * (12 * D + 3 * m)
    answer = SLOW * 5 * N * m
    decode = (U - T) * U * m + 100 * U**2 + 3 * m + 12 * D + 6 * D
    assert OVERHEAD + hold < MODEL * DOWN  # the model comes right behind the inbox, and later
    parts = [
        4 * DOWN + LATENCY + OVERHEAD + keys,
        32 * UP + LATENCY + N * OVERHEAD,
        (4 * N + 32 * N) * DOWN + LATENCY + OVERHEAD + share,
        sealed * UP + LATENCY + N * OVERHEAD,
        (4 * 2 + sealed + MODEL) * DOWN + LATENCY + OVERHEAD,
        training() + mask,
        4 * m * UP + LATENCY + N * OVERHEAD + (N - 1) * 3 * m,
        4 * N * DOWN + LATENCY + OVERHEAD + answer,
        4 * m * UP + LATENCY + U * OVERHEAD + decode,
    ]
    assert end_of({"protocols": ["lightsecagg"], "overlap": False}) == sum(parts)


@pytest.mark.parametrize(("slowdown", "cores"), [(1.0, 4), (3.0, 1), (3.0, 2)])
def test_the_servers_cores_divide_its_work_but_not_its_overhead(slowdown: float, cores: int) -> None:
    expected = undisturbed() - averaging(3) + round(averaging(3) * slowdown / cores)
    assert end_of({"server": {"slowdown": slowdown, "cores": cores}}) == expected


def test_uploads_share_the_servers_link() -> None:
    assert end_of({"network.server.downlink_mbps": 8.0}) == undisturbed() + 2 * UPLOAD * UP
    assert end_of({"network.server.uplink_mbps": 16.0}) == undisturbed() + 2 * MODEL * DOWN


# --- user 0 lost --------------------------------------------------------------------------------
LOST = {
    ("training", "before_send"): lambda: MODEL_THERE,
    ("training", "mid_send"): lambda: MODEL_THERE + training() // 2,
    ("training", "after_send"): lambda: MODEL_THERE + training(),
    ("upload", "before_send"): lambda: MODEL_THERE + training(),
    ("upload", "mid_send"): lambda: MODEL_THERE + training() + UPLOAD // 2 * UP,
}


@pytest.mark.parametrize(("at", "when"), LOST)
def test_a_loss_noticed_by_deadline_costs_the_deadline(at: str, when: str) -> None:
    (trace,) = run({"dropout": script((0, 0, at, when))}).traces.values()
    (lost,), (end,) = of(trace, Lost), of(trace, End)
    assert (lost.user, lost.at) == (0, LOST[at, when]())
    assert end.at == 5000 * MS + averaging(2)


@pytest.mark.parametrize(("at", "when"), LOST)
def test_a_loss_noticed_by_disconnect_costs_its_delay(at: str, when: str) -> None:
    lost = script((0, 0, at, when))
    late = end_of({"dropout": lost, "detect": {"disconnect": 3.0}})
    assert late == LOST[at, when]() + 3000 * MS + averaging(2)
    at_once = end_of({"dropout": lost, "detect": {"disconnect": 0.0}})
    assert at_once == undisturbed(users=2)


@pytest.mark.parametrize("detect", ["timeout", {"disconnect": 3.0}, {"disconnect": 0.0}])
def test_a_loss_after_the_upload_costs_a_plain_round_nothing(detect: Any) -> None:
    (trace,) = run({"dropout": script((0, 0, "upload", "after_send")), "detect": detect}).traces.values()
    (result,), (lost,), (end,) = of(trace, Aggregated), of(trace, Lost), of(trace, End)
    assert lost.at == MODEL_THERE + training() + UPLOAD * UP
    assert [user for user, _, _ in result.members] == [0, 1, 2]
    assert end.at == undisturbed()


def test_half_an_upload_is_charged_as_half_its_bytes() -> None:
    result = run({"dropout": script((0, 0, "upload", "mid_send"))})
    (trace,) = result.traces.values()
    (broken,) = of(trace, Sent, arrived=None)
    assert (broken.sender, broken.bytes, broken.size) == (0, UPLOAD // 2, UPLOAD)
    (entry,) = result.summary["protocols"]["fedavg"]["rounds"]
    assert entry["bytes_up"] == 2 * UPLOAD + UPLOAD // 2
    assert entry["bytes_down"] == 3 * MODEL


@pytest.mark.parametrize("name", SYNC_PROTOCOLS)
def test_under_timeout_the_server_gives_up_exactly_at_a_deadline(name: str) -> None:
    result = edges()
    trace, deadlines = result.traces[name], result.scenario.deadlines
    given_up = of(trace, GaveUp)
    assert given_up
    for row in given_up:
        step = trace[row.cause]
        timer = trace[step.cause]
        assert isinstance(timer, TimerSet)
        assert step.ready == timer.fires == timer.at + round(deadlines.given[timer.name].after_s * 1e9)


@pytest.mark.ci(but=["secagg"])
@pytest.mark.parametrize("name", SYNC_PROTOCOLS)
def test_under_disconnect_the_server_gives_up_after_the_delay(name: str) -> None:
    lost = script((0, 0, "shares", "mid_send"), (1, 0, "upload", "before_send"))
    trace = run({**SIX, "dropout": lost, "detect": {"disconnect": 0.25}}).traces[name]
    given_up = of(trace, GaveUp)
    assert [user for row in given_up for user in row.users] == [0, 1]
    for row in given_up:
        step = trace[row.cause]
        (loss,) = of(trace, Lost, user=row.users[0])
        assert (step.call, trace[step.cause]) == ("gone", loss)
        assert step.ready == loss.at + 250 * MS


# --- late, not lost -----------------------------------------------------------------------------
@pytest.mark.ci(but=["fedavg"])
@pytest.mark.parametrize("name", SYNC_PROTOCOLS)
def test_an_upload_that_was_given_up_is_ignored(name: str) -> None:
    changes = {
        **SIX,
        "protocols": [name],
        "rounds": 4,
        "deadlines.upload": 1.0,
        "dropout": script((0, 0, "upload", "delay"), (1, 1, "upload", "before_send"), delay_s=1.5),
    }
    result = run(changes)
    trace, entries = result.traces[name], result.summary["protocols"][name]["rounds"]
    (late,) = [m for m in of(trace, Sent, kind="upload", sender=0, round=0) if m.arrived is not None]
    ends = {row.round: row for row in of(trace, End)}
    assert ends[0].at < late.sent < late.arrived < ends[1].at
    thrown_away = [trace[trace[row.cause].cause] for row in of(trace, Ignored, round=0, party=SERVER)]
    assert late in thrown_away
    assert late.bytes == late.size  # its bytes are charged
    took_part = [{s.party for s in of(trace, Step, round=index)} - {SERVER} for index in range(4)]
    assert [0 in parties for parties in took_part] == [True, False, True, True]
    assert [entry["survivors"] for entry in entries] == [5, 4, 6, 6]
    assert all(entry["aggregate_exact"] for entry in entries)


@pytest.mark.parametrize("name", SYNC_PROTOCOLS)
def test_an_upload_delayed_within_the_deadline_counts(name: str) -> None:
    changes = {**SIX, "protocols": [name], "dropout": script((0, 0, "upload", "delay"), delay_s=0.5)}
    (trace,) = run(changes).traces.values()
    (result,), (end,) = of(trace, Aggregated), of(trace, End)
    assert len(result.members) == 6
    (punctual,) = of(run({**SIX, "protocols": [name]}).traces[name], End)
    assert end.at > punctual.at + 400 * MS


# --- nothing is free ----------------------------------------------------------------------------
FREE = (
    "step", "call", "row", "long_row", "gathered_row", "vector", "short_element", "expansion", "prg_seed",
    "sharing", "secret", "decoding", "mds_element",
)  # fmt: skip
"""What the profile of hand calculations all but leaves out."""


@pytest.mark.parametrize("name", SYNC_PROTOCOLS)
def test_counted_work_and_received_messages_never_take_zero_time(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    original = ModelledClock.work_ns

    def spy(self: ModelledClock, segment: Segment, speed: float) -> int:
        ns = original(self, segment, speed)
        seen.append((sum(n for kind, n in segment.work.items() if kind not in FREE), ns))
        return ns

    monkeypatch.setattr(ModelledClock, "work_ns", spy)
    trace = run({**SIX, "protocols": [name]}).traces[name]
    assert all((work > 0) == (ns > 0) for work, ns in seen)
    assert any(work for work, _ in seen)
    received = of(trace, Step, call="receive")
    assert all(step.end + step.left - step.start >= OVERHEAD for step in received)
    assert all(s.end - s.start == sum(ns for _, ns in s.segments) for s in of(trace, Step))
    assert all(step.end > step.start for step in of(trace, Step, call="train"))


def test_work_that_recurs_takes_as_long_each_time() -> None:
    clock = ModelledClock({"a": 3e-9, "b": 5e-9})
    pieces = [[("a", 2), ("b", 1)], [("b", 1), ("a", 1), ("a", 1)], [("a", 2), ("b", 2)], [("b", 2)], []]
    for speed in (1.0, 10.0):
        took = [clock.work_ns(Segment("upload", counted), speed) for counted in pieces * 2]
        assert took == [round(speed * ns) for ns in (11, 11, 16, 10, 0)] * 2
