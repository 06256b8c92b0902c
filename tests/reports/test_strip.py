"""The strips of a page hold every round of the summary, in bounded space."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from simfl.reports import timeline
from simfl.reports.folder import Run
from simfl.reports.strip import MAX_BARS, outcome, strips
from simfl.reports.timeline import Packed
from tests.reports.conftest import changed

PLENTY = 10**6


def packed(run: Run, asked: tuple[int, int] | None = None) -> dict[str, Packed]:
    return {name: timeline.pack(run, name, PLENTY, asked) for name in run.summary.protocols}


def many(run: Run, name: str, rounds: int) -> Run:
    """A run whose summary has a protocol's rounds again and again; one in a hundred is far longer."""
    entries = run.summary.protocols[name].rounds
    made = []
    for k in range(rounds):
        r = entries[k % len(entries)]
        longer = {"end_s": r.start_s + 1000 * r.total_s} if k % 100 == 99 else {}
        made.append(r.model_copy(update={"index": k, **longer}))
    return changed(run, name, rounds=made)


@pytest.mark.parametrize("some", ["losing", "buffered"])
def test_a_bar_has_a_rounds_duration_and_outcome(some: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(some)
    found = strips(run, packed(run))
    assert found is not None
    assert (found["each"], found["slots"]) == (1, max(len(rounds) for rounds in run.rounds.values()))
    for row in found["rows"]:
        rounds, data = run.summary.protocols[row["name"]].rounds, row["data"]
        assert data["round"] == [r.index for r in rounds]
        assert data["us"] == [round(r.total_s * 1e6) for r in rounds]
        assert data["outcome"] == "".join(outcome(r)[0] for r in rounds)
        why = {rounds[bar].index: data["reasons"][number] for bar, number in data["why"]}
        assert why == {r.index: r.reason for r in rounds if not r.completed}
        assert data["held"] == "1" * len(rounds)
        assert list(run.traces)[row["place"]] == row["name"]


def test_a_round_without_users_is_skipped(losing: Run) -> None:
    done, _, aborted = losing.summary.protocols["lightsecagg"].rounds
    nobody = aborted.model_copy(update={"selected": 0})
    assert [outcome(r) for r in (done, aborted, nobody)] == ["completed", "failed", "skipped"]


def test_rounds_that_the_timeline_holds_are_marked(losing: Run) -> None:
    found = strips(losing, packed(losing, (1, 1)))
    assert found is not None
    assert [row["data"]["held"] for row in found["rows"]] == ["010"] * 3


def test_of_too_many_rounds_a_bar_is_the_longest_of_some(losing: Run) -> None:
    run = many(losing, "lightsecagg", 1000)
    found = strips(run, packed(run), most=100)
    assert found is not None
    (row,) = found["rows"]
    assert (found["each"], found["slots"], len(row["data"]["us"])) == (10, 100, 100)
    rounds = run.summary.protocols["lightsecagg"].rounds
    for k, us in enumerate(row["data"]["us"]):
        assert us == round(max(r.total_s for r in rounds[10 * k : 10 * k + 10]) * 1e6)
    assert set(row["data"]["round"][9::10]) == set(range(99, 1000, 100))


@pytest.mark.ci
def test_strips_have_a_bounded_size(losing: Run) -> None:
    run = many(losing, "lightsecagg", 2 * MAX_BARS + 1)
    found = strips(run, packed(run))
    assert found is not None
    assert found["each"] == 3
    assert len(json.dumps(found["rows"][0]["data"], separators=(",", ":"))) < 1e6


def test_the_axis_names_rounds_that_there_are(losing: Run) -> None:
    for rounds in (1, 2, 7, 100):
        found = strips(many(losing, "lightsecagg", rounds), packed(losing))
        assert found is not None
        ticks = [tick for tick, _ in found["axis"]]
        assert ticks[0] == 0
        assert set(ticks) <= set(range(rounds))
        assert all(0 < at < 100 for _, at in found["axis"])


def test_without_a_finished_round_there_is_no_strip(losing: Run) -> None:
    empty = replace(changed(losing, "secagg", rounds=[]), rounds={"secagg": []})
    assert strips(empty, packed(empty)) is None
