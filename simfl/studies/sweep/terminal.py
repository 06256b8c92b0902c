"""The terminal's view of a sweep: the means of its points."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from simfl.reports.grid import print_line, print_paragraph
from simfl.reports.model import failed
from simfl.runs.results.columns import Column, Measure, columns_of
from simfl.runs.results.statistics import Estimate
from simfl.studies.sweep.picture import short
from simfl.studies.sweep.plan import in_words
from simfl.studies.sweep.tables import Failures, Group

WIDTH, NAME_WIDTH, CELL_WIDTH = 79, 16, 9
"""Columns of text: of a line, of a protocol's name, of a number."""
MAX_POINTS = 12
"""Points that are printed; the tables on disk have them all."""
Point = Mapping[str, Any]
Measures = Mapping[Measure, Estimate | None]
NONE: Mapping[Group, Failures] = {}


def show_sweep(
    console: Console,
    name: str,
    points: Sequence[Point],
    means: Mapping[Group, Measures],
    seeds: int,
    failures: Mapping[Group, Failures] = NONE,
) -> None:
    """Print mean and 95 % interval of each protocol at the first `MAX_POINTS` points.

    Args:
        console: Where to print.
        name: Name of the study.
        points: Values that vary, by the point's number.
        means: Mean of each measure, by point and protocol.
        seeds: Number of seeds.
        failures: Failed rounds, by point and protocol.
    """
    over = "one seed, so no interval" if seeds == 1 else f"mean and ± 95 % interval over {seeds} seeds"
    print_line(console, f"{name}: {over}", "bold")
    print_line(console, "Seconds of virtual time per aggregate; spans of phases in completed rounds", "dim")
    if console.width >= WIDTH:
        print_line(console, _cells("", [column.headings["sweep"] for column in columns_of("sweep")]))
    numbers = sorted({point for point, _ in means})
    labels = _labels([points[number] for number in numbers])
    for number, label in list(zip(numbers, labels, strict=True))[:MAX_POINTS]:
        if label:
            print_paragraph(console, label, "bold")
        # At most `MAX_POINTS` passes over all means, which are in the order of the plan.
        for (point, protocol), measures in means.items():
            if point == number:
                _show_one(console, protocol, measures, seeds)
                for text in to_targets(measures):
                    print_paragraph(console, f"  {text}", "dim")
                if (failures_here := failures.get((point, protocol))) is not None:
                    print_paragraph(console, f"  {failed(*failures_here)}", "yellow")
    if (hidden := len(numbers) - MAX_POINTS) > 0:
        print_line(console, f"... and {hidden} of {len(numbers)} points more: means.csv has them all")


def _show_one(console: Console, protocol: str, measures: Measures, seeds: int) -> None:
    """Print a protocol's means, and its intervals in a line below; a long name takes a separate line."""
    shown = [(column, measures.get(column.measure)) for column in columns_of("sweep")]
    if console.width < WIDTH:
        facts = (f"{column.headings['sweep']} {_mean(column, e)}{_half(column, e)}" for column, e in shown)
        print_paragraph(console, f"  {protocol}: {', '.join(facts)}", "")
        return
    name = f"  {protocol}"
    # A long name has a line of its own, and its numbers stay below their headings.
    if len(name) >= NAME_WIDTH:
        print_line(console, name)
        name = ""
    print_line(console, _cells(name, [_mean(c, e) for c, e in shown]))
    # Of the first column, the time per aggregate.
    seeds_with_value = shown[0][1].n if shown[0][1] else 0
    halves = [_half(c, e) for c, e in shown]
    note = f"  {seeds_with_value} of {seeds} seeds" if seeds_with_value < seeds else ""
    intervals = _cells(note, halves)
    if seeds > 1 and intervals.strip():
        print_line(console, intervals.rstrip(), "dim")


def to_targets(measures: Measures) -> Iterator[str]:
    """Yield, for each target, the share of seeds that reached it, and the means if all of them did."""
    for kind in ("accuracy", "loss"):
        share = measures.get((f"{kind}_reached", ""))
        if share is not None:
            text = f"to {kind}: {round(share.mean * share.n)} of {share.n} seeds"
            seconds, rounds, moved = (measures[f"{kind}_after_{key}", ""] for key in ("s", "rounds", "bytes"))
            if seconds and rounds and moved:
                text += f"; {seconds.text()} s, {rounds.text(1)} rounds, {moved.text(scale=1e6)} MB"
            yield text


def _cells(name: str, cells: Sequence[str]) -> str:
    return f"{name:{NAME_WIDTH}}" + "".join(f"{cell:>{CELL_WIDTH}}" for cell in cells)


def _labels(points: Sequence[Point]) -> list[str]:
    """Return short texts that distinguish the points: their single values, or all if these do not suffice."""
    single = [{k: v for k, v in p.items() if not isinstance(v, dict | list)} for p in points]
    # Lists and mappings are shown only if single values do not distinguish the points.
    different = {in_words(p) for p in single} - {""}
    chosen = single if len(points) in (len(different), 1) else points
    shorts = short(list({key for point in chosen for key in point}))
    return [in_words({shorts[key]: value for key, value in point.items()}) for point in chosen]


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1e3 else f"{value:.1f}" if abs(value) < 1e5 else f"{value:.1e}"


def _mean(column: Column, e: Estimate | None) -> str:
    if e is None:
        return "-"
    if column.reduction == "share":
        return "all" if e.mean == 1 else f"{e.mean:.1%}"
    return e.text().partition("±")[0] if e.half else _number(e.mean)


def _half(column: Column, e: Estimate | None) -> str:
    if e is None or e.half is None or column.reduction == "share":
        return ""
    return "±" + (e.text().partition("±")[2] if e.half else _number(e.half))
