"""Patterns reach all of the machines' tables that honest parties can reach; the rest has its reason."""

from __future__ import annotations

import pytest

from simfl.studies.explore.cohort import Fate
from simfl.studies.explore.coverage import NEVER, UNTRIED, counted, coverage_lines
from simfl.studies.explore.rounds import explore, make_cohort
from simfl.trace.codes import Discarded
from tests.studies.explore.faults import FAULTS, plant

SIGNED = {"consistency": "signatures"}


@pytest.mark.ci(but=["fedavg"])
@pytest.mark.parametrize(
    ("protocol", "more", "affected_users"),
    [
        ("fedavg", {}, 3),
        ("secagg", {}, 2),
        ("lightsecagg", SIGNED, 2),
        pytest.param("ccesa", {}, 2, marks=pytest.mark.slow),
        pytest.param("secagg_plus", {}, 2, marks=pytest.mark.slow),
        ("fedbuff", {}, 1),
    ],
)
def test_each_row_that_is_not_reached_has_a_reason(protocol, more, affected_users) -> None:
    cohort = make_cohort(protocol, 3, overrides={f"protocols.{protocol}.{k}": v for k, v in more.items()})
    report = explore(cohort, affected_users=affected_users)
    assert report.violation is None
    missed = set(cohort.rows) - report.reached
    assert missed <= NEVER.keys()
    assert {row for row in missed if row[0] != "ignored"} <= {
        ("user", "answered", "survivors"),
        ("user", "signed", "survivors"),
    }
    assert report.reached <= set(cohort.rows)  # nothing is reached that the tables do not have
    rows = list(coverage_lines(report.reached, cohort.rows))
    assert not [row for row in rows if row.because == UNTRIED]
    ok, not_tried = (
        sum(max(1, len(row.parts)) for row in rows if bool(row.because) is missed) for missed in (False, True)
    )
    assert counted(rows) == f"{ok} ok, 0 failed, {not_tried} not tried"
    assert ok == len(report.reached)
    assert ok + not_tried == len(cohort.rows) + 1  # one for refusals


@pytest.mark.slow
def test_a_buffer_reaches_its_recoverys_deadline_with_two_away() -> None:
    cohort = make_cohort("lightsecagg_async", 4)
    explore(cohort, affected_users=1)
    assert set(cohort.rows) - cohort.coverage.rows - NEVER.keys() == {
        ("deadline", "recovery"),
        ("discarded", Discarded.ABORTED),
    }
    away = Fate("upload", "after_send")
    cohort.judge((away, away, None, None), "timeout")
    assert set(cohort.rows) - cohort.coverage.rows <= NEVER.keys()


def test_no_reason_is_given_for_a_reached_row() -> None:
    """Each row of the table is one that some protocol has."""
    signed = {"protocols.secagg.consistency": "signatures"}
    cohorts = [make_cohort("lightsecagg_async", 3), make_cohort("secagg", 3, overrides=signed)]
    assert NEVER.keys() - {row for cohort in cohorts for row in cohort.rows} == {("refused",)}


def test_a_refusal_is_reported(monkeypatch) -> None:
    plant(next(fault for fault in FAULTS if fault.machine.__name__ == "MutePeer"), monkeypatch)
    report = explore(make_cohort("lightsecagg", 4))
    assert ("refused", "survivors") in report.reached
    assert "ok         refusals: survivors" in list(map(str, coverage_lines(report.reached, [])))


@pytest.mark.parametrize(
    ("protocol", "not_tried"),
    [
        ("fedavg", {"nothing beyond the sum is learned", "a recovery with enough answers does not wait"}),
        ("secagg", set()),
        ("secagg_plus", {"nothing beyond the sum is learned"}),
        ("fedbuff", {"nothing beyond the sum is learned"}),
        ("lightsecagg_async", set()),
    ],
)
def test_an_invariant_that_does_not_apply_is_not_tried(protocol, not_tried) -> None:
    lines = list(make_cohort(protocol, 4).invariant_lines)
    assert {line.name for line in lines if line.because} == not_tried
    assert len(lines) == 5
