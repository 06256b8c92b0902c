"""The sentences that a run ends in, by hand; in shipped scenarios; on the page."""

from __future__ import annotations

import re
from functools import cache
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from simfl.reports import one_round
from simfl.reports.assumptions import after, limits_hit
from simfl.reports.folder import Run
from simfl.reports.model import run_report
from simfl.reports.page import page
from simfl.reports.terminal import show
from simfl.runs.folder.result import Result
from simfl.runs.results.summary import Summary
from simfl.runs.simulation import run as simulate
from simfl.scenario.load import load, select_protocols
from tests.engine.harness import ROOT, run
from tests.reports.browser_pages import CHOSEN
from tests.reports.conftest import opened
from tests.reports.test_headline import printed
from tests.reports.test_terminal import round_, row, summary, text

SKIPPED = "selection: 3 of 9 users available"


def lines(content: dict[str, Any]) -> str:
    """Return the terminal's text without line ends."""
    return " ".join(text(content).split())


def kinds(wait: float) -> dict[str, float]:
    """Return the critical path of a round by kind, with `wait` seconds of waiting."""
    return {"compute": 4.0, "network": 3.0, "wait": wait}


def measured(**protocols: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a summary under the measured clock, whose means have intervals."""
    return {**summary(**protocols), "clock": "measured"}


def of_lengths(*seconds: float) -> list[dict[str, Any]]:
    """Return rounds that take these seconds; their spans are those of `round_`."""
    return [round_(k, start_s=100.0 * k, end_s=100.0 * k + s) for k, s in enumerate(seconds)]


# --- the ranking
def test_entries_of_one_length_are_not_ranked() -> None:
    """7 s and 7.3 s, whose ratio is shown as 1.0."""
    shown = lines(summary(a=[round_(0)], b=[round_(0, end_s=7.3, critical_kinds_s=kinds(7.0))]))
    assert shown.endswith("Per aggregate all entries take about as long: 7.000 s (a) to 7.300 s (b).")
    assert "Slowest" not in shown


def test_entries_that_differ_visibly_are_ranked() -> None:
    """7 s and 7.4 s, whose ratio is shown as 1.1."""
    shown = lines(summary(a=[round_(0)], b=[round_(0, end_s=7.4)]))
    assert shown.endswith("Fastest per aggregate: a. Slowest: b, 1.1 x as long.")


def test_an_entry_in_a_tie_is_not_the_slowest() -> None:
    """1±0, 2±7 and 1.5±0 s: the second may be the fastest."""
    rounds = {"a": of_lengths(1.0, 1.0, 1.0), "b": of_lengths(5.1, 0.5, 0.4), "c": of_lengths(1.5, 1.5, 1.5)}
    shown = lines(measured(**rounds))
    assert shown.endswith("Fastest per aggregate: a, in a tie with b. Slowest: c, 1.5 x as long.")


@pytest.mark.parametrize(("wait", "is_named"), [(7.0, True), (6.9, False)])
def test_a_wait_of_most_of_the_difference_decides(wait: float, is_named: bool) -> None:
    """Rounds of 7 s and of 21 s: of the 14 s between them a half is 7."""
    slow = round_(0, end_s=21.0, critical_kinds_s=kinds(wait + 0.05))
    shown = lines(summary(fast=[round_(0)], slow=[slow]))
    sentence = (
        "slow waits 7.05 s longer per aggregate for deadlines or offline users, and takes 14.0 s longer."
    )
    assert shown.endswith(f"Waiting decides that, not work or links: {sentence}") == is_named
    assert ("decides" in shown) == is_named


def test_skipped_rounds_that_decide_are_counted() -> None:
    """Two rounds of 50 s that find too few users, then one of 7 s: of 107 s an aggregate 100 are waiting."""
    skipped = [
        round_(k, reason=SKIPPED, start_s=50.0 * k, end_s=50.0 * k + 50, critical_kinds_s=kinds(50.0))
        for k in range(2)
    ]
    done = round_(2, start_s=100.0, end_s=107.0)
    assert lines(summary(a=[round_(0)], b=[*skipped, done])).endswith(
        "A deadline decides that, not the protocol: 2 of 3 rounds of b found too few users and waited for "
        "it, 50.0 s each, 100 s more per aggregate."
    )


def test_the_conclusion_is_the_last_of_a_run() -> None:
    console = Console(file=StringIO(), width=80)
    content = Summary.model_validate(summary(a=[round_(0), round_(1, reason="x")], b=[round_(0, end_s=20.0)]))
    show(console, run_report([content], "reference", notes=["a note"]))
    assert isinstance(console.file, StringIO)
    *_, failed, note, conclusion = console.file.getvalue().splitlines()
    assert failed == "a: 1 of 2 rounds failed: 1 x x"
    assert (note, conclusion) == ("a note", "Fastest per aggregate: a. Slowest: b, 1.4 x as long.")


# --- intervals wider than their means
def test_a_round_that_widens_an_interval_is_named() -> None:
    """5, 1 and 1 s: 2.3±5.7."""
    shown = lines(measured(a=of_lengths(5.0, 1.0, 1.0)))
    assert (
        "a: round 0 stands out and widens the interval of per aggregate, total (5.00 against a median of "
        "1.00): simfl report --round 0"
    ) in shown
    assert row(text(measured(a=of_lengths(5.0, 1.0, 1.0))), "per aggregate") == ["2±6"]


def test_of_two_rounds_the_longer_stands_out() -> None:
    assert "a: round 1 stands out" in lines(measured(a=of_lengths(1.0, 5.0)))


def test_narrow_intervals_have_no_sentence() -> None:
    """10, 9 and 11 s: 10±2.5, whose width is 5."""
    assert "stands out" not in lines(measured(a=of_lengths(10.0, 9.0, 11.0)))
    assert "stands out" not in lines(summary(a=of_lengths(5.0, 1.0, 1.0)))  # no interval is shown


def test_a_round_before_its_aggregate_is_named() -> None:
    """Round 1 fails after 40 s, so the aggregate of round 2 takes 41."""
    rounds = of_lengths(1.0, 40.0, 1.0, 1.0)
    rounds[1] |= {"status": "aborted", "reason": "x", "survivors": 0}
    shown = lines(measured(a=rounds))
    wide = re.search(r"a: round 1 stands out and widens the interval of (.*?): simfl report --round 1", shown)
    assert wide
    assert wide[1].startswith("per aggregate, in failed rounds, critical: offline and ")
    assert wide[1].endswith("more (41.0 against a median of 1.00)")


def test_a_repeat_that_widens_an_interval_is_named() -> None:
    """Runs of 1, 1 and 9 s an aggregate."""
    runs = [Summary.model_validate(measured(a=of_lengths(s, s))) for s in (1.0, 1.0, 9.0)]
    console = Console(file=StringIO(), width=80)
    show(console, run_report(runs, "reference"))
    assert isinstance(console.file, StringIO)
    shown = " ".join(console.file.getvalue().split())
    assert "a: repeat 3 stands out and widens the interval of per aggregate, total (9.00 against" in shown
    assert "simfl report DIR/repeat-3" in shown


# --- spans of a buffer
def test_spans_of_aggregations_are_marked() -> None:
    """As the spans of an aggregation's updates overlap; of rounds the tables are as they were."""
    shown = text(summary(staleness={"0": 1}, a=[round_(0)]))
    assert row(shown, "offline *") == ["1.000"]
    assert row(shown, "total") == ["7.000"]
    assert "* Spans of one aggregation's updates overlap" in shown
    assert "*" not in text(summary(a=[round_(0)]))


# --- shipped scenarios
@cache
def multi_round() -> Result:
    """The shipped run of 120 rounds, which takes seconds."""
    scenario = load(ROOT / "scenarios/multi_round.yaml", {"payload": "shadow"})
    return simulate(select_protocols(scenario, ["random", "partition", "batches_6"]))


@pytest.mark.ci
def test_selections_that_skip_rounds_are_slower() -> None:
    """partition completes 7 of 120 rounds; the means of completed rounds are nearly the same for all."""
    shown = printed(multi_round().summarised())
    times = [float(cell) for cell in row(shown, "per aggregate")]
    assert times[1] / times[0] == pytest.approx(238, abs=1)
    assert times[2] / times[0] == pytest.approx(10.1, abs=0.1)
    totals = [float(cell) for cell in row(shown, "total †")]
    assert totals == pytest.approx([totals[0]] * 3, abs=0.0011)  # one digit of the table
    assert "partition: 113 of 120 rounds failed: 113 x selection: 69 to 94 of 120" in " ".join(shown.split())


@pytest.mark.ci
def test_a_shortage_of_batches_is_explained() -> None:
    """Whole groups of 12 and batches of 6 are rare among 69 to 94 users; each failure waits for 5 s."""
    result = multi_round()
    scenario = result.scenario
    content, shown = result.summarised(), StringIO()
    show(Console(file=shown, width=80), run_report([content], "reference"))
    out = " ".join(shown.getvalue().split())
    assert "113 x selection: 69 to 94 of 120 users available, 1 whole group of 12 needed" in out
    assert "69 to 91 of 120 users available, 2 whole batches of 6 needed" in out
    assert out.endswith(
        "A deadline decides that, not the protocol: 113 of 120 rounds of partition found too few users and "
        "waited for it, 5.00 s each, 80.7 s more per aggregate."
    )
    deciding = dict(after(scenario, content.assumed, result.traces))
    assert deciding["deadlines"] == (
        "advertise (5 s) passed with too few users to select 113 of 120 times in partition, 46 of 120 times "
        "in batches_6"
    )
    assert limits_hit(scenario, content.assumed, result.traces) == ["Deadlines that passed: advertise 159 x"]


def test_a_skipped_round_is_explained_wherever_it_is_shown(tmp_path: Path) -> None:
    """Two of three batches of two users, each online with 0.7: round 0 has them, a later one has not."""
    run({**CHOSEN, "payload": "shadow"}, out=tmp_path)
    chosen = opened(tmp_path)
    (entry,) = chosen.summary.protocols.values()
    (first, *_) = skipped = [r for r in entry.rounds if r.is_skipped]
    reason = f"{first.reason}, 2 whole batches of 2 needed"
    assert sum(count for _, count in chosen.summary.failures("lightsecagg")) == len(skipped)
    html = page(chosen)
    assert f"<b>round {first.index} aborted</b> {reason}" in html
    assert f'"{reason}"' in html  # of the strip's bars
    (sentence,) = one_round.sentences(chosen, one_round.focus(chosen, first.index, None))
    assert f"and failed ({reason})" in sentence


# --- the page
def test_the_page_begins_with_the_conclusion(losing: Run) -> None:
    html = page(losing)
    shown = StringIO()
    show(Console(file=shown, width=80), run_report([losing.summary], "reference"))
    (conclusion,) = re.findall(r'<p class="conclusion">(.*?)</p>', html)
    assert " ".join(shown.getvalue().split()).endswith(unescape(conclusion))
    assert html.index('class="conclusion"') < html.index('class="lede"') < html.index('id="headline"')
