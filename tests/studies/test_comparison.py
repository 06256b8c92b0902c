"""Verdicts, settings that differ, and entries matched by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.runs.folder.identity import differing
from simfl.runs.results.statistics import Estimate
from simfl.runs.results.summary import ProtocolSummary, Summary
from simfl.studies.comparison.cases import (
    HEADLINE,
    Case,
    Comparison,
    Relation,
    Side,
    Verdict,
    verdict,
)
from tests.reports.test_terminal import round_, summary

OPPOSITE: dict[Relation, Relation] = {"faster": "slower", "slower": "faster", "tie": "tie"}
TIMES = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
ESTIMATES = st.builds(
    lambda mean, half: Estimate(mean, half, 1 if half is None else 5), TIMES, st.none() | st.floats(0, 10)
)


def entry(*ends: float, **more: Any) -> ProtocolSummary:
    """An entry of rounds that last so long, one after the other."""
    rounds, at = [], 0.0
    for index, end in enumerate(ends):
        rounds.append(round_(index, start_s=at, end_s=at + end, **more))
        at += end
    return Summary.model_validate(summary(some=rounds)).protocols["some"]


def side(label: str, settings: dict[str, Any] | None = None, **cases: Case) -> Side:
    return Side(label, label, "run", "", settings or {}, {("", name): case for name, case in cases.items()})


# --- verdicts -----------------------------------------------------------------------------------
@given(ESTIMATES, ESTIMATES)
def test_a_verdict_turned_round_is_the_opposite(one: Estimate, other: Estimate) -> None:
    found, back = verdict(one, other), verdict(other, one)
    assert back.relation == OPPOSITE[found.relation]
    if found.relation == "faster":
        assert one.mean < other.mean
    assert found.text.split()[0] == found.relation


@given(ESTIMATES)
def test_a_time_ties_with_itself(one: Estimate) -> None:
    assert verdict(one, one).text == "tie"


@given(TIMES, TIMES)
def test_without_intervals_shown_digits_decide(one: float, other: float) -> None:
    found = verdict(Estimate(one, None, 1), Estimate(other, None, 1))
    assert (found.relation == "tie") == (f"{one:.3f}" == f"{other:.3f}")


@pytest.mark.parametrize(
    ("mean", "half", "reference", "text"),
    [
        (0.88, None, 1.0, "faster by 12 %"),
        (1.12, 0.01, 1.0, "slower by 12 %"),
        (2.34, None, 1.0, "slower 2.3 x"),
        (1.0, None, 2.34, "faster 2.3 x"),
        (1.0, None, 512.0, "faster 512 x"),
        (1.004, None, 1.0, "slower by 0.4 %"),
        (100.01, None, 100.0, "slower by under 0.1 %"),
        (1.12, 0.2, 1.0, "tie"),
        (0.0, None, 1.0, "faster"),
        (1.0, None, 0.0, "slower"),
        (0.0, None, 0.0, "tie"),
    ],
)
def test_a_verdict_in_words(mean: float, half: float | None, reference: float, text: str) -> None:
    assert verdict(Estimate(mean, half, 5), Estimate(reference, None, 1)).text == text


# --- cases --------------------------------------------------------------------------------------
def test_a_modelled_run_has_no_interval_and_a_measured_one_has() -> None:
    rounds = entry(1.0, 2.0, 3.0, 4.0)
    assert Case.of_runs([rounds], noisy=False).estimates[HEADLINE] == Estimate(2.5, None, 1)
    found = Case.of_runs([rounds], noisy=True)
    assert (measured := found.estimates[HEADLINE]) is not None
    assert measured.half == pytest.approx(2.054, abs=1e-3)  # as in test_statistics
    assert found.texts[HEADLINE] == "2.5±2.1"


def test_intervals_of_repeats_are_over_runs() -> None:
    runs = [entry(1.0, 1.0), entry(2.0, 2.0), entry(3.0, 3.0), entry(4.0, 4.0)]
    found = Case.of_runs(runs, noisy=True).estimates[HEADLINE]
    assert found is not None
    assert (found.mean, found.n) == (2.5, 4)
    assert found.half == pytest.approx(2.054, abs=1e-3)


def test_repeats_show_their_common_text() -> None:
    texts = Case.of_runs([entry(1.0), entry(2.0)], noisy=True).texts
    assert (texts["completed", ""], texts["survivors", ""]) == ("1 of 1", "9")
    texts = Case.of_runs([entry(1.0), entry(2.0, survivors=7)], noisy=True).texts
    assert texts["survivors", ""] == "7 - 9"


def test_no_aggregate_has_no_verdict() -> None:
    failed, fine = (Case.of_runs([entry(1.0, **more)], False) for more in ({"status": "aborted"}, {}))
    assert failed.against(fine) is None
    assert fine.against(failed) is None


def test_rounds_differ_where_other_ones_were_completed() -> None:
    def same(*entries: list[ProtocolSummary]) -> bool:
        cases = (Case.of_runs(protocols, False) for protocols in entries)
        (match,) = Comparison([side(str(k), a=case) for k, case in enumerate(cases)]).matches
        return match.same_rounds

    assert same([entry(1.0, 1.0)], [entry(2.0, 2.0)])
    assert not same([entry(1.0, 1.0)], [entry(2.0)])
    assert not same([entry(1.0), entry(1.0, 1.0)], [entry(1.0)])


def test_means_of_a_sweep_make_a_case() -> None:
    means = {HEADLINE: Estimate(2.0, 0.5, 3), ("rounds", ""): Estimate(4, 0, 3), ("accuracy", ""): None}
    found = Case.of_means({**means, ("completed", ""): Estimate(4, 0, 3)})
    assert (found.texts[HEADLINE], found.rounds) == ("2.0±0.5", 4)
    assert ("accuracy", "") not in found.texts
    assert Case.of_means({**means, ("completed", ""): Estimate(3, 0, 3)}).rounds is None


# --- comparisons --------------------------------------------------------------------------------
def test_entries_match_by_name_and_the_first_is_the_reference() -> None:
    slow, quick = Case.of_runs([entry(2.0)], False), Case.of_runs([entry(1.0)], False)
    found = Comparison([side("one", a=slow, b=slow), side("two", b=quick, c=quick), side("three", b=slow)])
    (match,) = found.matches
    assert match.key == ("", "b")
    assert match.verdicts == (None, Verdict("faster", 0.5), Verdict("tie", 1.0))
    assert [(key[1], only.label) for key, only in found.alone] == [("a", "one"), ("c", "two")]


def test_an_entry_that_the_reference_lacks_has_no_verdict() -> None:
    some = Case.of_runs([entry(2.0)], False)
    (match,) = Comparison([side("one"), side("two", b=some), side("three", b=some)]).matches
    assert match.verdicts == (None, None, None)


def test_settings_differ_by_dotted_key() -> None:
    one = {"rounds": 3, "clock": {"kind": "modelled"}, "protocols": {"a": {}, "b": {"k": 1}}, "l": [1]}
    two = {"rounds": 3, "clock": {"kind": "recorded", "dir": "x"}, "protocols": {"a": {}}, "l": [2]}
    assert differing([one, two]) == {
        "clock.kind": ["modelled", "recorded"],
        "clock.dir": [None, "x"],
        "protocols.b": [{"k": 1}, None],
        "l": [[1], [2]],
    }
    assert differing([one, one, one]) == {}
    assert differing([{"a": 1}, {"a": 1}, {"a": 2}]) == {"a": [1, 1, 2]}


def test_a_comparison_is_written_as_json() -> None:
    slow, quick = Case.of_runs([entry(2.0)], False), Case.of_runs([entry(1.0)], False)
    found = Comparison([side("one", {"rounds": 1}, a=slow), side("two", {"rounds": 2}, a=quick)])
    content = json.loads(json.dumps(found.dump(), allow_nan=False))
    assert content["settings"] == {"rounds": {"one": 1, "two": 2}}
    (written,) = content["entries"]
    assert written["verdicts"] == {"two": {"relation": "faster", "ratio": 0.5}}
    (first, *_) = written["measures"]["two"]
    assert first == {"measure": "per_aggregate_s", "phase": "", "mean": 1.0, "half_95": None, "n": 1}
