"""A page's timeline, unpacked again, is the trace; what does not fit is left out by rule and said."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from simfl.errors import BadInput
from simfl.reports import timeline
from simfl.reports.folder import Run
from simfl.reports.one_round import Focus
from simfl.reports.page import MAX_SPANS
from simfl.reports.timeline import views
from simfl.trace.rows import PHASES, SERVER, Aborted, Aggregated, End, Lost, Sent, Step
from tests.engine.harness import SYNC, run
from tests.reports.conftest import opened

PLENTY = 10**6

Spans = list[tuple[int, int, int, list[Any], int, int]]


def unpacked(packed: timeline.Packed, view: dict[str, Any]) -> Spans:
    """(start, end, party, type, waited, the span that held it up or -1), as the page's script reads them."""
    out: Spans = []
    at, types = 0, list(packed.types)
    for k, (s, d, p, t, w, a) in enumerate(zip(*(view[key] for key in "sdptwa"), strict=True)):
        at += s
        out.append((at, at + d, p, types[t], w, k - a if a else -1))
    return out


def us(ns: int) -> int:
    return round(ns / 1000)


@pytest.mark.parametrize("name", ["fedavg", "secagg", "lightsecagg"])
def test_a_round_is_unpacked_to_its_steps_and_messages(losing: Run, name: str) -> None:
    packed = timeline.pack(losing, name, PLENTY)
    assert (packed.left_out, [v["label"] for v in packed.views]) == ("", ["round 0", "round 1", "round 2"])
    for index, view in enumerate(packed.views):
        rows = [r for r in losing.traces[name] if getattr(r, "round", None) == index]
        base = next(r.start for r in rows if isinstance(r, End))
        expected: Counter[tuple[Any, ...]] = Counter()
        for row in rows:
            if isinstance(row, Step):
                at = row.start
                for phase, ns in row.segments:
                    lane = timeline.LANES.index(row.lane)
                    expected[us(at - base), us(at + ns - base), row.party, lane, phase] += 1
                    at += ns
            elif isinstance(row, Sent):
                user, lane = (row.sender, 3) if row.to == SERVER else (row.to, 2)
                end = row.sent if row.arrived is None else row.arrived
                expected[us(row.sent - base), us(end - base), user, lane, row.phase] += 1
        found = Counter(
            (start, end, party, kind[0], PHASES[kind[1]])
            for start, end, party, kind, _, _ in unpacked(packed, view)
        )
        assert found == expected


def test_the_cause_of_a_span_ended_when_it_was_ready(losing: Run) -> None:
    packed = timeline.pack(losing, "lightsecagg", PLENTY)
    held = 0
    for view in packed.views:
        spans = unpacked(packed, view)
        for start, _, party, _, waited, after in spans:
            if after >= 0:
                cause = spans[after]
                assert cause[1] <= start + 1  # each is rounded
                # a message leaves, and a step is ready, when what caused it ends
                assert cause[1] in (start, start - 1, start + 1, start - waited) or party == SERVER
                held += 1
        assert held


def test_the_path_of_a_view_fills_the_round_and_names_its_spans(losing: Run) -> None:
    packed = timeline.pack(losing, "secagg", PLENTY)
    for view in packed.views:
        spans, at = unpacked(packed, view), 0
        for party, phase, kind, start, end, span in view["path"]:
            assert start == at
            at = end
            if span >= 0:
                assert spans[span][2] == party
                assert spans[span][3][1] == phase
                assert spans[span][0] <= start <= end <= spans[span][1] or kind == 2
        assert at == view["length"]


def test_an_asynchronous_path_is_that_of_the_whole_run(buffered: Run) -> None:
    for name in buffered.traces:
        (view,) = timeline.pack(buffered, name, PLENTY).views
        assert view["label"] == "aggregations 0 to 7"
        assert (view["path"][0][3], view["path"][-1][4]) == (0, view["length"])
        for before, after in zip(view["path"], view["path"][1:], strict=False):
            assert before[4] == after[3]


def test_marks_name_losses_and_aborts(losing: Run) -> None:
    for name, trace in losing.traces.items():
        marks = [m for view in timeline.pack(losing, name, PLENTY).views for m in view["marks"]]
        for sign, kind in (("lost", Lost), ("aborted", Aborted), ("aggregate", Aggregated)):
            assert sum(m[2] == sign for m in marks) == sum(isinstance(row, kind) for row in trace)


# --- what fits ----------------------------------------------------------------------------------
def test_typical_rounds_come_first(losing: Run) -> None:
    """Of three rounds, two completed: the longer of them is their upper median; then the aborted one, if it
    is the longest, or the first."""
    trace = losing.traces["lightsecagg"]
    chosen, _, left = views(losing, "lightsecagg", 1)
    assert left.startswith("1 of 3 rounds")
    entries = losing.summary.protocols["lightsecagg"].rounds
    done = [e for e in entries if e.status == "completed"]
    longer = max(done, key=lambda e: e.end_s - e.start_s)
    assert [view.ends[0].round for view in chosen] == [longer.index]
    assert timeline.pack(losing, "lightsecagg", PLENTY).first == longer.index
    most = sum(getattr(row, "round", None) in (0, 1) for row in trace)
    assert [view.label for view in views(losing, "lightsecagg", most)[0]] == ["round 0", "round 1"]


def test_of_a_round_that_is_too_large_some_users_are_shown(losing: Run) -> None:
    (view,), _, left = views(losing, "lightsecagg", 100)
    assert view.users is not None
    assert 0 < len(view.users) < 6
    index = view.ends[0].round
    path = {party for _, party, _ in losing.rounds["lightsecagg"][index].critical} - {SERVER}
    assert path <= set(view.users)
    assert f"{len(view.users)} users of a round at most" in left
    packed = timeline.pack(losing, "lightsecagg", 100)
    assert {party for _, _, party, *_ in unpacked(packed, packed.views[0])} == {SERVER, *view.users}
    assert packed.views[0]["users"] == list(view.users)


def test_an_asynchronous_run_shows_its_beginning_and_its_middle(buffered: Run) -> None:
    name = "lightsecagg_async"
    rows = len(buffered.traces[name])
    chosen, _, left = views(buffered, name, rows // 2)
    assert all(view.label.startswith("aggregation") for view in chosen)
    first, middle = chosen
    assert (first.ends[0].round, first.start) == (0, 0)
    assert middle.ends[0].round >= 4
    shown = len(first.ends) + len(middle.ends)
    assert left == f"{shown} of 8 aggregations"
    for view in chosen:
        for n in view.numbers:
            row = buffered.traces[name][n]
            if isinstance(row, Step):
                assert row.end >= view.start
                assert row.start < view.end


def test_only_the_rounds_that_are_asked_for(losing: Run, buffered: Run) -> None:
    assert [v.label for v in views(losing, "secagg", PLENTY, (1, 2))[0]] == ["round 1", "round 2"]
    assert [v.label for v in views(buffered, "fedbuff", PLENTY, (2, 3))[0]] == ["aggregations 2 to 3"]
    with pytest.raises(BadInput, match="--rounds 5:9: secagg has finished none of them"):
        views(losing, "secagg", PLENTY, (5, 9))


def test_the_round_that_is_asked_for_is_there_and_shown_first(losing: Run, buffered: Run) -> None:
    for index in range(3):
        chosen, first, _ = views(losing, "secagg", 1, None, Focus(index, None, "secagg"))
        assert [view.ends[0].round for view in chosen] == [index]
        packed = timeline.pack(losing, "secagg", PLENTY, None, Focus(index, None, "secagg"))
        assert packed.views[packed.first]["rounds"] == [[index, 0, packed.views[index]["length"]]]
        assert packed.rounds == {0, 1, 2}
    rows = len(buffered.traces["fedbuff"])
    for index in range(8):
        chosen, first, _ = views(buffered, "fedbuff", rows // 2, None, Focus(index, None, "fedbuff"))
        assert index in [end.round for end in chosen[first].ends]
    assert views(losing, "secagg", PLENTY, None, Focus(7, 1, "secagg")) == views(losing, "secagg", PLENTY)


def test_the_requested_user_is_shown(losing: Run) -> None:
    for user in range(6):
        (view,), _, _ = views(losing, "lightsecagg", 20, None, Focus(0, user, "lightsecagg"))
        assert view.users is not None
        assert user in view.users
        assert len(view.users) < 6


def test_an_aggregation_has_its_place_in_its_stretch(buffered: Run) -> None:
    for name, rounds in buffered.rounds.items():
        (view,) = timeline.pack(buffered, name, PLENTY).views
        base = rounds[0].start
        assert view["rounds"] == [[r.index, us(r.start - base), us(r.end - base)] for r in rounds]


def test_each_drop_out_rate_has_its_typical_round(tmp_path: Any) -> None:
    worlds = {"population.users": 6, "privacy": {"T": 2, "D": 2, "U": 4}, "rounds": 6}
    run({**worlds, "dropout": {"rate": [0.0, 0.2, 0.4]}}, SYNC, out=tmp_path)
    found = opened(tmp_path)
    each = max(len([r for r in found.traces["fedavg"] if getattr(r, "round", None) == k]) for k in range(6))
    rates = {
        found.summary.protocols["fedavg"].rounds[v.ends[0].round].dropout_rate
        for v in views(found, "fedavg", 3 * each)[0]
    }
    assert len(rates) == 3


def test_as_many_spans_as_a_page_holds_are_less_than_3_megabytes(losing: Run, buffered: Run) -> None:
    for found in (losing, buffered):
        for name in found.traces:
            packed = timeline.pack(found, name, PLENTY)
            size = sum(
                len(json.dumps(view[key], separators=(",", ":"))) for view in packed.views for key in "sdptwa"
            )
            spans = sum(len(view["s"]) for view in packed.views)
            assert MAX_SPANS * size / spans < 2.6e6
