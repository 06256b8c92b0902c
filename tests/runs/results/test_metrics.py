"""From a trace to numbers: on traces written by hand, worked out on paper (seconds stand for nanoseconds)."""

from __future__ import annotations

from collections import Counter

import pytest

from simfl.runs.results import metrics
from simfl.trace.rows import (
    SERVER,
    Aborted,
    Aggregated,
    Begin,
    End,
    GaveUp,
    Ignored,
    Judged,
    Lost,
    Refused,
    Row,
    Sent,
    Step,
    TimerSet,
    Trace,
)


def step(
    party: int, call: str, cause: int, ready: int, start: int, *segments: tuple[str, int], previous: int = -1
) -> Step:
    lane, end = "training" if call == "train" else "protocol", start + sum(ns for _, ns in segments)
    return Step(0, party, lane, call, "", "", cause, previous, ready, start, end, segments)


def sent(
    sender: int,
    to: int,
    phase: str,
    cause: int,
    at: int,
    arrived: int | None,
    size: int = 8,
    moved: int | None = None,
) -> Sent:
    return Sent(0, sender, to, phase, phase, "", size, size if moved is None else moved, cause, at, arrived)


SLOW_USER: list[Row] = [
    Begin(0, 0, (0, 1)),
    step(SERVER, "start", 0, 0, 0, ("training", 0)),
    TimerSet(0, "upload", "upload", "", 1, 0, 500),
    sent(SERVER, 0, "training", 1, 0, 10),
    sent(SERVER, 1, "training", 1, 0, 10),
    step(0, "receive", 3, 10, 10, ("training", 1)),  # 5
    step(1, "receive", 4, 10, 10, ("training", 1)),
    step(0, "train", 5, 11, 11, ("training", 10)),
    step(1, "train", 6, 11, 11, ("training", 100)),
    step(0, "submit", 7, 21, 21, ("upload", 1)),
    sent(0, SERVER, "upload", 9, 22, 32),  # 10
    step(SERVER, "receive", 10, 32, 32, ("upload", 1)),
    step(1, "submit", 8, 111, 111, ("upload", 2)),
    sent(1, SERVER, "upload", 12, 113, 123),
    step(SERVER, "receive", 13, 123, 123, ("upload", 2), ("recovery", 5)),
    Aggregated(0, ((0, "", 0), (1, "", 0)), 14, 130),  # 15
    End(0, 0, 130, 14),
]
"""Two users; user 1 trains ten times as long, and the server finishes as soon as it has its upload."""


def only(trace: list[Row]) -> metrics.Round:
    (entry,) = metrics.rounds(Trace(trace))
    return entry


def test_the_critical_path_names_the_culprit_and_its_time() -> None:
    assert only(SLOW_USER).critical == {
        ("training", 1, "network"): 10,
        ("training", 1, "compute"): 101,
        ("upload", 1, "compute"): 2,
        ("upload", 1, "network"): 10,
        ("upload", SERVER, "compute"): 2,
        ("recovery", SERVER, "compute"): 5,
    }


def test_a_span_is_from_a_phases_first_start_to_its_last_end() -> None:
    assert only(SLOW_USER).span == {"offline": 0, "training": 111, "upload": 125 - 21, "recovery": 5}


def test_a_round_counts_its_events() -> None:
    entry = only(SLOW_USER)
    assert (entry.start, entry.end, entry.reason, entry.selected) == (0, 130, None, 2)
    assert (entry.bytes_up, entry.bytes_down, entry.dropped, entry.ignored) == (16, 16, Counter(), Counter())


def test_a_step_waits_for_the_step_that_held_its_lane() -> None:
    """Both uploads are there at 20; the server needs 30 for user 0's before it can look at user 1's."""
    trace: list[Row] = [
        Begin(0, 0, (0, 1)),
        step(SERVER, "start", 0, 0, 0, ("training", 0)),
        sent(0, SERVER, "upload", 1, 0, 20),
        sent(1, SERVER, "upload", 1, 10, 20),
        step(SERVER, "receive", 2, 20, 20, ("upload", 30)),
        step(SERVER, "receive", 3, 20, 50, ("recovery", 5), previous=4),
        Aggregated(0, ((0, "", 0), (1, "", 0)), 5, 55),
        End(0, 0, 55, 5),
    ]
    assert only(trace).critical == {
        ("upload", 0, "network"): 20,
        ("upload", SERVER, "compute"): 30,
        ("recovery", SERVER, "compute"): 5,
    }


def test_a_deadline_is_the_servers_waiting() -> None:
    trace: list[Row] = [
        Begin(0, 0, (0, 1)),
        step(SERVER, "start", 0, 0, 0, ("training", 3)),
        TimerSet(0, "upload", "upload", "", 1, 3, 503),
        sent(0, SERVER, "upload", 1, 3, 20),
        step(SERVER, "receive", 3, 20, 20, ("upload", 1)),
        step(SERVER, "expire", 2, 503, 503, ("recovery", 7)),
        GaveUp(0, "upload", "", (1,), 5, 510),
        Aggregated(0, ((0, "", 0),), 5, 510),
        End(0, 0, 510, 5),
    ]
    entry = only(trace)
    assert entry.critical == {
        ("training", SERVER, "compute"): 3,
        ("upload", SERVER, "wait"): 500,
        ("recovery", SERVER, "compute"): 7,
    }
    assert entry.dropped == {"upload": 1}


def test_a_report_that_is_late_is_waiting_for_the_lost_user() -> None:
    trace: list[Row] = [
        Begin(0, 0, (0, 1)),
        step(1, "train", 0, 0, 0, ("training", 40)),
        Lost(0, 1, "", "training", "amid training", 1, 40),
        step(SERVER, "gone", 2, 100, 100, ("recovery", 4)),
        GaveUp(0, "upload", "", (1,), 3, 104),
        Aggregated(0, ((0, "", 0),), 3, 104),
        End(0, 0, 104, 3),
    ]
    entry = only(trace)
    assert entry.critical == {
        ("training", 1, "compute"): 40,
        ("training", 1, "wait"): 60,
        ("recovery", SERVER, "compute"): 4,
    }
    assert entry.dropped == {"training": 1}  # lost once, though also given up


def test_a_path_is_cut_at_the_start_of_the_round() -> None:
    trace: list[Row] = [
        Begin(0, 0, (0,)),
        step(0, "train", 0, 0, 0, ("training", 80)),
        End(0, 0, 50, 0),
        sent(0, SERVER, "upload", 1, 80, 90),
        step(SERVER, "receive", 3, 90, 90, ("recovery", 10)),
        Aggregated(1, ((0, "", 0),), 4, 100),
        End(1, 50, 100, 4),
    ]
    end = trace[-1]
    assert isinstance(end, End)
    assert metrics.critical_path(Trace(trace), end) == {
        ("training", 0, "compute"): 30,
        ("upload", 0, "network"): 10,
        ("recovery", SERVER, "compute"): 10,
    }


def test_only_the_counted_users_make_a_span() -> None:
    trace = [*SLOW_USER]
    trace[15] = Aggregated(0, ((0, "", 0),), 14, 130)
    assert only(trace).span["training"] == 21


def test_messages_of_uncounted_users_are_in_no_span() -> None:
    expected = only(SLOW_USER).span
    for stray in (sent(7, SERVER, "offline", 0, 0, 90), sent(SERVER, 7, "offline", 0, 1, 2)):
        assert only([*SLOW_USER[:-1], stray, SLOW_USER[-1]]).span == expected


def test_steps_after_the_end_lengthen_no_span() -> None:
    expected = only(SLOW_USER).span
    for stray in (sent(1, SERVER, "training", 12, 130, 140), step(0, "late", 9, 131, 131, ("training", 5))):
        assert only([*SLOW_USER, stray]).span == expected
    assert only([*SLOW_USER, sent(1, SERVER, "offline", 12, 120, 140)]).span == {**expected, "offline": 10}


def test_losses_refusals_and_discarded_messages_are_counted() -> None:
    trace: list[Row] = [
        *SLOW_USER[:-1],
        Lost(0, 1, "", "recovery", "after sending upload", 14, 113),
        GaveUp(0, "offline", "", (2, 3), 14, 120),
        Ignored(0, SERVER, 0, "update", "", "stale: beyond 2", 14, 130),
        Ignored(0, SERVER, 0, "upload", "", "a second one", 14, 130),
        Refused(0, 1, SERVER, "survivors", "", "too few", 14, 130),
        Judged(0, (3, 3, 2, 2), True, False, 14, 130),
        sent(0, SERVER, "upload", 9, 22, None, size=100, moved=40),
        SLOW_USER[-1],
    ]
    entry = only(trace)
    assert entry.dropped == {"recovery": 1, "offline": 2}
    assert entry.ignored == {"update: stale: beyond 2": 1, "upload: a second one": 1}
    assert entry.stale == (0,)
    assert (entry.reliable, entry.private) == (True, False)
    assert entry.refused == {"survivors: too few": 1}
    assert entry.bytes_up == 16 + 40


def test_an_aborted_round_has_its_reason_and_a_path() -> None:
    trace: list[Row] = [
        Begin(0, 0, (0, 1)),
        step(SERVER, "start", 0, 0, 0, ("offline", 0)),
        TimerSet(0, "advertise", "offline", "", 1, 0, 60),
        step(SERVER, "expire", 2, 60, 60, ("offline", 0)),
        Aborted(0, "advertise: 0 users answered, 2 needed", 3, 60),
        End(0, 0, 60, 3),
    ]
    entry = only(trace)
    assert entry.reason == "advertise: 0 users answered, 2 needed"
    assert entry.critical == {("offline", SERVER, "wait"): 60}


def test_a_round_without_users_waited_before_its_first_phase() -> None:
    entry = only(
        [Begin(0, 100, ()), Aborted(0, "selection: 1 of 4 users available", 0, 600), End(0, 100, 600, 0)]
    )
    assert entry.critical == {("offline", SERVER, "wait"): 500}


@pytest.mark.parametrize("since", [0, 20, 70])
def test_the_shares_add_up_whenever_a_round_began(since: int) -> None:
    path = metrics.critical_path(Trace(SLOW_USER), End(0, since, 130, 14))
    assert sum(path.values()) == 130 - since
