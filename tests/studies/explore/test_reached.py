"""Patterns reach all of the machines' tables that honest parties can reach; the rest has its reason."""

from __future__ import annotations

import pytest

from simfl.protocols.machine import Reason
from simfl.studies.explore.cohort import Fate
from simfl.studies.explore.reached import NEVER, UNTRIED, counted, tried
from simfl.studies.explore.rounds import explore, make_cohort
from simfl.trace.codes import Discarded
from tests.studies.explore.faults import FAULTS, plant

SIGNED = {"consistency": "signatures"}


@pytest.mark.ci(but=["fedavg"])
@pytest.mark.parametrize(
    ("protocol", "more", "unlucky"),
    [
        ("fedavg", {}, 3),
        ("secagg", {}, 2),
        ("lightsecagg", SIGNED, 2),
        pytest.param("ccesa", {}, 2, marks=pytest.mark.slow),
        pytest.param("secagg_plus", {}, 2, marks=pytest.mark.slow),
        ("fedbuff", {}, 1),
    ],
)
def test_what_is_never_reached_has_its_reason(protocol, more, unlucky) -> None:
    cohort = make_cohort(protocol, 3, overrides={f"protocols.{protocol}.{k}": v for k, v in more.items()})
    report = explore(cohort, unlucky=unlucky)
    missed = set(cohort.rows) - report.reached
    assert missed <= NEVER.keys()
    assert {row for row in missed if row[0] != "ignored"} <= {
        ("user", "answered", "survivors"),
        ("user", "signed", "survivors"),
    }
    assert report.reached <= set(cohort.rows)  # nothing is reached that the tables do not have
    rows = list(tried(report.reached, cohort.rows))
    assert not [row for row in rows if row.because == UNTRIED]
    ok, not_tried = (sum(row.number for row in rows if bool(row.because) is none) for none in (False, True))
    assert counted(rows) == f"{ok} ok, 0 failed, {not_tried} not tried"
    assert ok == len(report.reached)
    assert ok + not_tried == len(cohort.rows) + 1  # one for refusals


@pytest.mark.slow
def test_a_buffer_reaches_its_recoverys_deadline_with_two_away() -> None:
    cohort = make_cohort("lightsecagg_async", 4)
    explore(cohort, unlucky=1)
    assert set(cohort.rows) - cohort.reached.rows - NEVER.keys() == {
        ("deadline", "recovery"),
        ("discarded", Discarded.ABORTED),
    }
    away = Fate("upload", "after_send")
    cohort.judge((away, away, None, None), "timeout")
    assert set(cohort.rows) - cohort.reached.rows <= NEVER.keys()


def test_no_reason_is_given_for_what_is_reached() -> None:
    """Each row of the table is one that some protocol has."""
    signed = {"protocols.secagg.consistency": "signatures"}
    cohorts = [make_cohort("lightsecagg_async", 3), make_cohort("secagg", 3, overrides=signed)]
    assert NEVER.keys() - {row for cohort in cohorts for row in cohort.rows} == {("refused",)}


def test_a_refusal_is_told(monkeypatch) -> None:
    plant(next(fault for fault in FAULTS if fault.machine.__name__ == "MutePeer"), monkeypatch)
    report = explore(make_cohort("lightsecagg", 4))
    assert ("refused", "survivors") in report.reached
    assert "ok         refusals: survivors" in list(map(str, tried(report.reached, [])))


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
def test_a_law_without_an_object_is_not_tried(protocol, not_tried) -> None:
    laws = list(make_cohort(protocol, 4).laws)
    assert {law.name for law in laws if law.because} == not_tried
    assert len(laws) == 5


@pytest.mark.ci
def test_two_processes_reach_what_one_does() -> None:
    one, two = (explore(make_cohort("fedavg", 3), jobs=jobs) for jobs in (1, 2))
    assert one.reached == two.reached >= {("ignored", Reason.LATE), ("server", "upload")}
