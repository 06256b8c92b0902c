"""The page of a comparison: one file without network requests, as `report.html`."""

from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from simfl.reports.page import NO_VALUE, accuracy, environment, stacks
from simfl.runs.results.columns import Column, Measure, column
from simfl.runs.results.statistics import Estimate
from simfl.studies.comparison.cases import Case, Comparison, Match
from simfl.studies.comparison.report import comparison_report, in_words, setting

MAX_ENTRIES = 200
"""Entries that are shown; sweeps may have thousands."""
MAX_TAUS = 12
"""Stalenesses that have a row each; larger ones share one."""
HEADLINES = ("per_aggregate_s", "failed_s", "completed", "accuracy")
BYTES = ("bytes_up", "bytes_down", "user_bytes_up", "user_bytes_down")


def page(comparison: Comparison) -> str:
    """Return the page of a comparison."""
    matches, labels = comparison.matches[:MAX_ENTRIES], [side.label for side in comparison.sides]
    columns = list(map(column, BYTES))
    template = environment().get_template("compare.html")
    return template.render(
        sides=comparison.sides,
        unit=comparison.unit,
        time=comparison.time,
        settings={key: list(map(setting, values)) for key, values in comparison.settings.items()},
        entries=[{"title": in_words(match.key), "same": match.same_rounds} for match in matches],
        alone=[f"{in_words(key)}, only in {side.label}" for key, side in comparison.alone],
        more=len(comparison.matches) - len(matches),
        headline=_cells(matches, labels, list(map(column, HEADLINES))),
        verdicts=[match.verdict_texts for match in matches],
        paths=_stacked(matches, labels, "critical_s", "per_aggregate_s"),
        spans=_stacked(matches, labels, "span_s", "total_s"),
        bytes=_cells(matches, labels, columns),
        byte_headings=[shown.headings["run"] for shown in columns],
        staleness=[_staleness(match, labels) for match in matches],
        accuracy=[_accuracy(match, labels) for match in matches],
        figures=[match.table(labels) for match in matches],
        report=comparison_report(comparison),
    )


def _bar(mean: Estimate | None, most: float) -> dict[str, float]:
    """Return a mean and the ends of its interval in percent of the longest bar; zeros without a value."""
    if mean is None or not most:
        return dict.fromkeys(("mean", "low", "high"), 0.0)
    half = mean.half or 0.0
    # An interval below zero would leave the chart; no time is negative.
    ends = {"mean": mean.mean, "low": max(0.0, mean.mean - half), "high": mean.mean + half}
    return {name: round(100 * value / most, 3) for name, value in ends.items()}


def _longest(matches: Sequence[Match], measure: Measure) -> float:
    """Return the end of the longest bar with its interval."""
    # One scale for all entries, so that bars of different entries can be compared.
    means = (case.estimates.get(measure) for match in matches for case in match.cases if case)
    return max((mean.mean + (mean.half or 0.0) for mean in means if mean), default=0.0)


def _stacked(
    matches: Sequence[Match], labels: Sequence[str], key: str, end: str
) -> list[list[dict[str, Any]]]:
    """Return stacks of phases for each entry, a row a side, all on one scale."""
    rows = [(k, label, case) for k, match in enumerate(matches) for label, case in match.by_label(labels)]
    drawn = stacks([(label, None, case.estimates) for _, label, case in rows], key, end)
    by_match: list[list[dict[str, Any]]] = [[] for _ in matches]
    for (number, _, _), row in zip(rows, drawn, strict=True):
        by_match[number].append(row)
    return by_match


def _cells(matches: Sequence[Match], labels: Sequence[str], columns: Sequence[Column]) -> list[list[Any]]:
    """Return a row a side for each entry: the side's label, then a text and a bar for each column."""
    longest = [_longest(matches, shown.measure) for shown in columns]

    def cell(case: Case, shown: Column, most: float) -> dict[str, Any]:
        text = case.texts.get(shown.measure) or NO_VALUE
        return {"text": text, **_bar(case.estimates.get(shown.measure), most)}

    return [
        [(label, list(map(cell, repeat(case), columns, longest))) for label, case in match.by_label(labels)]
        for match in matches
    ]


def _staleness(match: Match, labels: Sequence[str]) -> dict[str, Any] | None:
    """Return the shares of updates by staleness, of each side; None of a synchronous entry."""
    counts: dict[str, Counter[int]] = {}
    for label, case in match.by_label(labels):
        for p in case.protocols:
            for late, updates in (p.staleness or {}).items():
                # Repeats are added up, and shares are of all their updates.
                counts.setdefault(label, Counter())[min(int(late), MAX_TAUS)] += updates
    if not counts:
        return None
    shares = []
    # Without gaps: a staleness that nobody had has a row of zeros between its neighbours.
    for tau in range(max(tau for of in counts.values() for tau in of) + 1):
        of_sides = [of[tau] / of.total() for of in counts.values()]
        shares.append((f"{tau} and more" if tau == MAX_TAUS else str(tau), of_sides))
    most = max(share for _, of_sides in shares for share in of_sides)
    return {"labels": list(counts), "shares": shares, "most": most}


def _accuracy(match: Match, labels: Sequence[str]) -> dict[str, Any] | None:
    """Return lines over virtual time, one a side; of repeats that of the first."""
    cases = match.by_label(labels)
    return accuracy({label: case.protocols[0] for label, case in cases if case.protocols})
