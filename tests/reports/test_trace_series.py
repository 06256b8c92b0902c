"""What is read off a trace over time, on small traces by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from simfl.reports import trace_series
from simfl.reports.folder import Run
from simfl.reports.timeline import pack
from simfl.trace.rows import (
    SERVER,
    Aggregated,
    Begin,
    End,
    GaveUp,
    Ignored,
    Presence,
    Refused,
    Row,
    Sent,
    Step,
    Trace,
)
from tests.runs.results.test_metrics import sent


def test_messages_under_way_are_counted_in_each_direction() -> None:
    trace = Trace(
        [
            sent(SERVER, 0, "training", -1, 0, 10),
            sent(SERVER, 1, "training", -1, 0, 15),
            sent(0, SERVER, "upload", -1, 5, 20),
            sent(1, SERVER, "upload", -1, 20, 30),
            sent(2, SERVER, "upload", -1, 6, None),
        ]
    )
    assert trace_series.link_load(trace, range(5), up=False) == [(0, 2), (10, 1), (15, 0)]
    assert trace_series.link_load(trace, range(5), up=True) == [(5, 1), (30, 0)]
    assert trace_series.link_load(trace, [3], up=True) == [(20, 1), (30, 0)]


def test_users_are_online_until_they_go() -> None:
    trace = Trace([Presence(0, False, 0), Presence(1, False, 5), Presence(0, True, 5), Presence(2, False, 9)])
    assert trace_series.online(trace, 4) == [(0, 3), (9, 2)]
    assert trace_series.online(Trace(), 4) == [(0, 4)]


def upload(user: int, cause: int, at: int) -> Row:
    return Step(
        0, SERVER, "protocol", "receive", "upload", f"{user}.0", cause, -1, at, at, at + 1, (("upload", 1),)
    )


def test_the_buffer_holds_updates_until_they_are_aggregated() -> None:
    trace = Trace(
        [
            Begin(0, 0, (0, 1, 2), buffered=True),
            upload(0, 0, 1),
            upload(1, 0, 3),
            upload(2, 0, 5),
            Ignored(0, SERVER, 2, "upload", "2.0", "given up, or came before", 3, 6),
            upload(3, 0, 7),
            Refused(0, SERVER, 3, "upload", "3.0", "malformed", 5, 8),
            Ignored(0, SERVER, 0, "update", "0.0", "stale: beyond 4", 5, 9),
            upload(4, 0, 9),
            upload(5, 0, 10),
            Aggregated(0, ((1, "1.0", 0), (4, "4.0", 0)), 8, 10),
            End(0, 0, 10, 8),
        ]
    )
    assert trace_series.buffer_fill(trace) == [(0, 0), (2, 1), (4, 2), (9, 1), (10, 0), (11, 1)]
    assert trace_series.version(trace) == [(0, 0), (10, 1)]


def test_the_buffer_is_full_before_each_aggregate(buffered: Run) -> None:
    K = buffered.scenario.buffer.K if buffered.scenario.buffer else 0
    for trace in buffered.traces.values():
        changes = trace_series.buffer_fill(trace)
        assert min(value for _, value in changes) == 0
        for row in trace:
            if isinstance(row, Aggregated):
                before = max(c for c in changes if c[0] < row.at or (c[0] == row.at and c[1] >= K))
                assert before[1] >= K - 1  # the last of them may come in the very step that aggregates


@pytest.mark.parametrize("kind", ["losing", "buffered"])
def test_every_row_is_of_one_round(kind: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(kind)
    for trace in run.traces.values():
        groups = trace_series.by_round(trace)
        assert sorted(n for numbers in groups.values() for n in numbers) == list(range(len(trace)))
        for number, row in enumerate(trace):
            if isinstance(row, End):
                assert number in groups[row.round]
    if kind == "losing":
        for trace in run.traces.values():
            for index, numbers in trace_series.by_round(trace).items():
                assert {getattr(trace[n], "round", index) for n in numbers} == {index}


def test_a_receipt_is_the_step_on_a_message(losing: Run) -> None:
    for trace in losing.traces.values():
        answered = trace_series.receipts(trace)
        assert answered
        for number, receipt in answered.items():
            message, taken = trace[number], trace[receipt]
            assert isinstance(message, Sent)
            assert isinstance(taken, Step)
            assert (taken.party, taken.ready) == (message.to, message.arrived)


def test_a_moment_has_one_text_on_the_page_and_in_perfetto(losing: Run) -> None:
    """Each mark of the timeline is an instant of the same text; Perfetto has what is late besides."""
    for name, trace in losing.traces.items():
        shown = Counter(m[3] for view in pack(losing, name, 10**6).views for m in view["marks"])
        every = Counter(m.text for row in trace if (m := trace_series.moment(row)))
        assert shown <= every
        assert {text.split()[0].rstrip(":") for text in every - shown} <= {"ignored", "round", "verdict"}


def test_many_given_up_users_are_counted() -> None:
    found = trace_series.moment(GaveUp(0, "upload", "", tuple(range(40)), 3, 9))
    assert found == trace_series.Moment(
        9, SERVER, "gave up", "gave up 40 users: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 28 more",
        {"users": tuple(range(40))},
    )  # fmt: skip
