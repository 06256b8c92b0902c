"""Reports of users: rows and numbers that cannot be are refused, and a report has a length."""

from __future__ import annotations

from typing import Any

import pytest

from simfl.live import user_reports
from simfl.live.control import Done
from simfl.live.user_reports import CLOCK_NS, SLACK_NS, UserReports, is_possible
from simfl.live.wire import Malformed
from simfl.trace import rows
from simfl.trace.rows import SERVER

RUN_NS, WAIT_NS = 10**9, 10**8


def test_rows_that_are_not_a_users_own_are_dropped() -> None:
    own = rows.Lost(0, 1, "", "upload", "", -1, 5)
    assert is_possible(own, 1, 1, 5, 8)
    assert not is_possible(own, 2, 1, 5, 8)
    assert not is_possible(own, 1, 0, 5, 8)
    assert not is_possible(own._replace(at=6 + SLACK_NS), 1, 1, 5, 8)
    assert not is_possible(rows.End(0, 0, 1, -1), 1, 1, 5, 8)
    sent = rows.Sent(0, 1, SERVER, "upload", "upload", "", 8, 8, -1, 0, 9)
    assert not is_possible(sent, 1, 1, 9, 8)
    assert is_possible(sent, SERVER, 1, 9, 8)
    assert not is_possible(sent, SERVER, 1, 9, 7)


@pytest.mark.parametrize(
    ("field", "most"),
    [
        ("steps_ns", 4 * RUN_NS),
        ("late_ns", 4 * RUN_NS),
        ("held_ns", RUN_NS),
        ("offset_ns", CLOCK_NS),
        ("ahead_ns", RUN_NS),
        ("off_ns", RUN_NS + WAIT_NS),
    ],
)
def test_numbers_of_a_report_are_bounded_by_the_run(field: str, most: int) -> None:
    def ended(value: int) -> UserReports:
        numbers: dict[str, Any] = {"steps_ns": 1, "late_ns": 0, "held_ns": 0} | {field: value}
        reports = UserReports()
        reports.end(1, Done(**numbers), RUN_NS, WAIT_NS)
        return reports

    assert getattr(ended(most).done[1], field) == most
    for value in (most + 1, 2**63 - 1, *((-most - 1,) if field in ("offset_ns", "ahead_ns") else ())):
        with pytest.raises(Malformed, match="must be at most"):
            ended(value)


def test_report_sizes_are_bounded_and_cost_no_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_reports, "REPORT_BYTES", 100_000)
    reports = UserReports()
    with pytest.raises(Malformed, match="no rows"):
        reports.add(1, "")
    for _ in range(100_000):  # each costs the same, or this would take minutes
        reports.add(1, "x")
    with pytest.raises(Malformed, match="more than 100000 characters"):
        reports.add(1, "x")
    reports.add(2, "x")
    reports.end(2, Done(1, 0, 0), RUN_NS, WAIT_NS)
    with pytest.raises(Malformed, match="not requested"):
        reports.add(2, "x")
    with pytest.raises(Malformed, match="not requested"):
        reports.end(2, Done(1, 0, 0), RUN_NS, WAIT_NS)
