"""The report of a comparison: settings that differ, a table of each entry, verdicts."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from simfl.errors import counted, cut
from simfl.reports.model import Report, Sentence, different_rounds
from simfl.runs.results.breakdown import DIFFERENT, ReportTable, TableCell, TableRow
from simfl.runs.results.units import listed
from simfl.studies.comparison.cases import HEADLINE, Case, Comparison, Key, Match, Verdict

MAX_SETTINGS, MAX_VALUE = 20, 60
"""Settings that are listed, and characters of a value."""
MAX_POINTS, MAX_NAMES = 12, 4
"""Points of a sweep in the table, and entries that a sentence names."""
INTERVALS = {
    "rounds": "over the {unit}s of a run",
    "runs": "over the runs of repeats",
    "seeds": "over the seeds of a sweep",
}
"""Words for the samples of intervals."""


def comparison_report(comparison: Comparison) -> Report:
    """Return the report of a comparison, its first side the reference."""
    return Report(list(_parts(comparison)))


def _parts(comparison: Comparison) -> Iterator[Sentence | ReportTable]:
    labels = [side.label for side in comparison.sides]
    first, *others = (f"{side.label}{' (interrupted)' * side.interrupted}" for side in comparison.sides)
    against = f"{', '.join(others)} against {first}"
    yield Sentence("title", f"{against}: seconds of {comparison.time} time per aggregate")
    yield from (Sentence("text", line) for line in _settings(comparison))
    yield Sentence("gap", "")
    if comparison.sides[0].kind == "sweep":
        yield from _points(comparison.matches, labels)
    else:
        for match in comparison.matches:
            yield from _entry(match, labels)
    # `alone` is ordered by sides, as `groupby` needs.
    for side, keys in groupby(comparison.alone, lambda alone: alone[1]):
        entries = listed([in_words(key) for key, _ in keys], MAX_NAMES)
        yield Sentence("warning", f"Only in {side.label}: {entries}")
    yield from (Sentence("note", line) for line in _legend(comparison))
    if comparison.moved:
        yield Sentence("drift", comparison.moved)
    if not all(match.same_rounds for match in comparison.matches):
        yield Sentence("different", f"{DIFFERENT} {different_rounds(comparison.unit)}")
    yield Sentence("conclusion", _closing(comparison))


def setting(value: Any) -> str:
    """Return a setting's value in a few words."""
    if value is None:
        return "not set"
    return cut(value if isinstance(value, str) else json.dumps(value), MAX_VALUE)


def _settings(comparison: Comparison) -> Iterator[str]:
    differ = comparison.settings
    verb = "differs" if len(differ) == 1 else "differ"
    yield f"{counted(len(differ), 'setting')} {verb}:" if differ else "No setting differs."
    for key, values in list(differ.items())[:MAX_SETTINGS]:
        # Sides with the same value are named together.
        sides: dict[str, list[str]] = {}
        for side, value in zip(comparison.sides, values, strict=True):
            sides.setdefault(setting(value), []).append(side.label)
        where = (f"{value} in {', '.join(names)}" for value, names in sides.items())
        yield f"  {key}: {'; '.join(where)}"
    if len(differ) > MAX_SETTINGS:
        yield f"  ... and {len(differ) - MAX_SETTINGS} more (--out FILE has all)"


def in_words(key: Key) -> str:
    """Return an entry, with its point in a sweep.

    >>> in_words(("rate=0.1", "secagg")), in_words(("", "secagg"))
    ('secagg at rate=0.1', 'secagg')
    """
    point, entry = key
    return f"{entry} at {point}" if point else entry


def _entry(match: Match, labels: Sequence[str]) -> Iterator[Sentence | ReportTable]:
    missing = [label for label, case in zip(labels, match.cases, strict=True) if not case]
    no_verdict = ", so no verdict" if match.cases[0] is None else ""
    yield Sentence("entry", in_words(match.key))
    if missing:
        yield Sentence("warning", f"  not in {', '.join(missing)}{no_verdict}")
    yield match.table(labels)
    yield Sentence("gap", "")


def _points(matches: Sequence[Match], labels: Sequence[str]) -> Iterator[Sentence | ReportTable]:
    """Yield the time per aggregate of each point and entry, with its verdict, as one table."""
    # Entries of a point follow each other, in the order of the first sweep that has them.
    points = [(point, list(of)) for point, of in groupby(matches, lambda match: match.key[0])]
    sections = [[TableRow(point)] * bool(point) + [_headline(match) for match in of] for point, of in points]
    yield ReportTable(labels, sections[:MAX_POINTS])
    if (more := len(points) - MAX_POINTS) > 0:
        yield Sentence("text", f"... and {more} of {len(points)} points more (--out FILE has all)")


def _headline(match: Match) -> TableRow:
    def cell(case: Case | None, verdict: Verdict | None) -> TableCell:
        text = case.texts.get(HEADLINE, "") if case else ""
        return TableCell(f"{text}, {verdict.text}" if verdict else text)

    cells = [cell(case, verdict) for case, verdict in zip(match.cases, match.verdicts, strict=True)]
    return TableRow(f"  {match.key[1]}{'' if match.same_rounds else f' {DIFFERENT}'}", cells)


def _legend(comparison: Comparison) -> Iterator[str]:
    """Yield sentences on intervals and verdicts."""
    kinds = dict.fromkeys(side.over for side in comparison.sides)
    over = [INTERVALS[kind].format(unit=comparison.unit) for kind in kinds if kind]
    if over:
        yield f"±: 95 % interval of a mean, {'; '.join(over)}"
    tie = "intervals that overlap, or no shown digit that differs" if over else "no shown digit differs"
    yield f"Verdict: of the time per aggregate, in percent of {comparison.sides[0].label}'s; tie: {tie}"


def _closing(comparison: Comparison) -> str:
    """Return a sentence that sums up the verdicts."""
    sides = []
    for number, side in enumerate(comparison.sides[1:], 1):
        verdicts = [(match.key, match.verdicts[number]) for match in comparison.matches]
        judged = [(key, verdict) for key, verdict in verdicts if verdict]
        # A sweep has too many entries for a sentence, so they are counted.
        named = side.kind == "run" and len(judged) <= MAX_NAMES
        groups: dict[str, list[str]] = {}
        for key, verdict in judged:
            amount = verdict.text.removeprefix(verdict.relation)
            relation = "in a tie" if verdict.relation == "tie" else verdict.relation
            groups.setdefault(relation, []).append(f"{in_words(key)}{amount}")
        parts = (
            f"{relation} in {', '.join(names) if named else f'{len(names)} of {len(judged)}'}"
            for relation, names in groups.items()
        )
        sides.append(f"{side.label} is {', and '.join(parts) or 'not comparable: no aggregate'}")
    return f"Against {comparison.sides[0].label}, {'; '.join(sides)}."
