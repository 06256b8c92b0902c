"""The terminal's view of a comparison: settings that differ, a grid of each entry, verdicts."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console

from simfl.errors import counted, cut
from simfl.reports import by_class
from simfl.reports.grid import Row, print_grid, say
from simfl.reports.terminal import MARK
from simfl.reports.units import listed
from simfl.runs.results.compare import HEADLINE, NO_VALUE, PLACES, Case, Comparison, Key, Match, Side, Verdict

MAX_SETTINGS, MAX_VALUE = 20, 60  # that differ, and characters of one of them
MAX_POINTS, MAX_NAMES = 12, 4  # of sweeps, that are shown; of entries, that a sentence names
INTERVALS = {
    "rounds": "over the {unit}s of a run",
    "runs": "over the runs of repeats",
    "seeds": "over the seeds of a sweep",
}


def show_comparison(console: Console, comparison: Comparison) -> None:
    """Print a comparison, its first side the reference."""
    labels = [side.label for side in comparison.sides]
    first = f"{labels[0]}{' (interrupted)' * comparison.sides[0].interrupted}"
    others = (f"{side.label}{' (interrupted)' * side.interrupted}" for side in comparison.sides[1:])
    say(
        console,
        f"{', '.join(others)} against {first}: seconds of {comparison.time} time per aggregate",
        "italic",
    )
    for line in _settings(comparison):
        say(console, line, "")
    console.print()
    if comparison.sides[0].kind == "sweep":
        _show_sweeps(console, comparison.matches, labels)
    else:
        for match in comparison.matches:
            _show_entry(console, match, comparison.sides)
    for side, keys in groupby(comparison.alone, lambda found: found[1]):
        entries = listed([in_words(key) for key, _ in keys], MAX_NAMES)
        say(console, f"Only in {side.label}: {entries}", "yellow")
    for line in legend(comparison):
        say(console, line, "dim")
    if comparison.moved:
        say(console, comparison.moved, "yellow")
    if not all(match.same_rounds for match in comparison.matches):
        say(console, different_rounds(comparison), "yellow")
    say(console, closing(comparison), "bold")


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
        told: dict[str, list[str]] = {}
        for side, value in zip(comparison.sides, values, strict=True):
            told.setdefault(setting(value), []).append(side.label)
        where = (f"{value} in {', '.join(names)}" for value, names in told.items())
        yield f"  {key}: {'; '.join(where)}"
    if len(differ) > MAX_SETTINGS:
        yield f"  ... and {len(differ) - MAX_SETTINGS} more (--out FILE has all)"


def in_words(key: Key) -> str:
    """Return an entry, and the point of a sweep where there is one.

    >>> in_words(("rate=0.1", "secagg")), in_words(("", "secagg"))
    ('secagg at rate=0.1', 'secagg')
    """
    point, entry = key
    return f"{entry} at {point}" if point else entry


def _show_entry(console: Console, match: Match, sides: Sequence[Side]) -> None:
    """Print the grid of an entry, a column for each side that has it."""
    shown = [(s, c, v) for s, c, v in zip(sides, match.cases, match.verdicts, strict=True) if c]
    missing = [side.label for side, case in zip(sides, match.cases, strict=True) if not case]
    no_verdict = ", so no verdict" if match.cases[0] is None else ""
    say(console, in_words(match.key), "bold")
    if missing:
        say(console, f"  not in {', '.join(missing)}{no_verdict}", "yellow")
    verdicts = [NO_VALUE if v is None else v.text for _, _, v in shown]
    if match.cases[0] is not None:
        verdicts[0] = "reference"
    sections = []
    for place in PLACES:
        mark = f" {MARK}" if place == "rates" and not match.same_rounds else ""
        rows = [
            Row(
                getattr(column, place) + mark,
                [case.texts.get(column.measure, NO_VALUE) for _, case, _ in shown],
                "bold" if column.measure == HEADLINE else None,
            )
            for column in match.columns(place)
        ]
        sections.append([*rows, Row("verdict", verdicts, "bold")] if place == "time" else rows)
    sections += by_class.sections({side.label: case.protocols for side, case, _ in shown})
    print_grid(console, [side.label for side, _, _ in shown], sections)
    console.print()


def _show_sweeps(console: Console, matches: Sequence[Match], labels: Sequence[str]) -> None:
    """Print the time per aggregate of each point and entry, with its verdict, as one grid."""
    points = [(point, list(of)) for point, of in groupby(matches, lambda match: match.key[0])]
    sections = []
    for point, of in points[:MAX_POINTS]:
        title = [Row(point, [""] * len(labels), "bold")] if point else []
        sections.append(title + [_headline(match) for match in of])
    print_grid(console, labels, sections)
    if (more := len(points) - MAX_POINTS) > 0:
        say(console, f"... and {more} of {len(points)} points more (--out FILE has all)", "")


def _headline(match: Match) -> Row:
    def cell(case: Case | None, found: Verdict | None) -> str:
        text = case.texts.get(HEADLINE, NO_VALUE) if case else NO_VALUE
        return f"{text}, {found.text}" if found else text

    cells = [cell(case, found) for case, found in zip(match.cases, match.verdicts, strict=True)]
    return Row(f"  {match.key[1]}{'' if match.same_rounds else f' {MARK}'}", cells)


def legend(comparison: Comparison) -> Iterator[str]:
    """Yield sentences on intervals and verdicts."""
    kinds = dict.fromkeys(side.over for side in comparison.sides)
    over = [INTERVALS[kind].format(unit=comparison.unit) for kind in kinds if kind]
    if over:
        yield f"±: 95 % interval of a mean, {'; '.join(over)}"
    tie = "intervals that overlap, or no shown digit that differs" if over else "no shown digit differs"
    yield f"Verdict: of the time per aggregate, in percent of {comparison.sides[0].label}'s; tie: {tie}"


def different_rounds(comparison: Comparison) -> str:
    return f"{MARK} They completed different {comparison.unit}s: the time per aggregate counts all."


def closing(comparison: Comparison) -> str:
    """Return the sentence that sums the verdicts up."""
    told = []
    for number, side in enumerate(comparison.sides[1:], 1):
        verdicts = [(match.key, match.verdicts[number]) for match in comparison.matches]
        known = [(key, found) for key, found in verdicts if found]
        named = side.kind == "run" and len(known) <= MAX_NAMES
        groups: dict[str, list[str]] = {}
        for key, found in known:
            amount = found.text.removeprefix(found.relation)
            relation = "in a tie" if found.relation == "tie" else found.relation
            groups.setdefault(relation, []).append(f"{in_words(key)}{amount}")
        parts = (
            f"{relation} in {', '.join(names) if named else f'{len(names)} of {len(known)}'}"
            for relation, names in groups.items()
        )
        told.append(f"{side.label} is {', and '.join(parts) or 'not comparable: no aggregate'}")
    return f"Against {comparison.sides[0].label}, {'; '.join(told)}."
