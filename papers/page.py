"""docs/reproduction.md from the stored results: what the papers print beside what simfl computes.

Invariant: every figure of ours is read from a stored result. The weakest results come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from papers.entry import Basis, Cell, Entry, Place, Value
from papers.limits import LIMITS, NOT_ATTEMPTED
from papers.store import Stored

BASES: tuple[Basis, ...] = get_args(Basis)
CLOSE = 0.15
"""The relative difference within which the summary counts a cell, whatever bound its entry sets."""

HEAD = """\
# The papers' tables and figures, run again

This page compares figures that the papers print with figures that simfl computes. It states first what the
agreements are worth and where the comparison is weak, then which cells miss, then what agrees.

`simfl reproduce --page` writes it from the results stored in `docs/reproduction/`; do not edit it. In a
checkout, `simfl reproduce NAME` runs an entry again and stores its result. A difference is ours / paper - 1.

"""
CLASSES = """\

**By construction**: the same formula on both sides, a sum or an order that follows from other cells, or what
the entry itself brings about; it shows that nothing is broken. **Fitted**: the paper's value was used to set
a parameter. **Predicted**: it was not. Beside these, {others} values are shown and not judged.

## Weak results
"""
MISSES = """\
## Cells that miss

Every cell that is beyond its bound, in another order than the paper states, or more than 15 % from the
printed number:
"""
MISSING = """\
## Not attempted
"""
ALL = """\
## All results

The three classes count the cells that keep the bound set for them, or the order or fact that the paper
states. *Within 15 %* counts the cells that print a number, one by one. Times are CPU seconds of the stored
run.
"""


def page(results: Sequence[tuple[Entry, Stored]], place: Place) -> str:
    """Return the whole page."""
    head = ("where", "what", *BASES, "within 15 %", "worst difference", "CPU time", "command")
    summary = _table(head, (_summary(entry, stored) for entry, stored in results))
    sections = (line for entry, stored in results for line in _section(entry, stored, place))
    cells = [cell for _, stored in results for cell in stored.evidence.cells]
    others = sum(cell.agrees is None for cell in cells)
    parts = [
        HEAD,
        *_classes(cells),
        CLASSES.format(others=others),
        *_limits(results),
        "",
        MISSES,
        *_misses(results),
        "",
        MISSING,
    ]
    parts += [f"- {paper}: {what}." for paper, what in NOT_ATTEMPTED.items()]
    return "\n".join([*parts, "", ALL, *summary, "", *sections])


def _classes(cells: Sequence[Cell]) -> Iterator[str]:
    """The cells that agree and those that do not, by what an agreement is worth, the least first."""
    judged = [(cell.basis, cell.agrees) for cell in cells if cell.agrees is not None]
    rows = []
    for basis in BASES:
        each = [agrees for other, agrees in judged if other == basis]
        rows.append((basis, str(len(each)), str(sum(each)), str(len(each) - sum(each))))
    return _table(("class", "cells judged", "agree", "disagree"), rows)


def _limits(results: Sequence[tuple[Entry, Stored]]) -> Iterator[str]:
    found = {entry.name: (entry, stored) for entry, stored in results}
    for name, text in LIMITS.items():
        if name in found:
            entry, stored = found[name]
            counted = _close(stored.evidence.cells)
            counted = f" {counted} cells lie within 15 % of the printed number." if counted else ""
            yield f"- **[{entry.paper} {entry.where}](#{name})**: {text}{counted}"


def _misses(results: Sequence[tuple[Entry, Stored]]) -> Iterator[str]:
    rows = [
        (f"[{entry.paper} {entry.where}](#{entry.name})", *_row(cell)[:5])
        for entry, stored in results
        for cell in stored.evidence.cells
        if cell.agrees is False or abs(cell.difference or 0) > CLOSE
    ]
    return _table(("where", "cell", "paper", "ours", "unit", "difference"), rows)


def _summary(entry: Entry, stored: Stored) -> tuple[str, ...]:
    cells = stored.evidence.cells
    return (
        f"[{entry.paper} {entry.where}](#{entry.name})",
        entry.title,
        *(_agree(cells, basis) for basis in BASES),
        _close(cells),
        _worst(cells),
        _took(stored.cpu_s),
        f"`{stored.command}`",
    )


def _agree(cells: Iterable[Cell], basis: Basis) -> str:
    decided = [cell.agrees for cell in cells if cell.basis == basis and cell.agrees is not None]
    return f"{sum(decided)} of {len(decided)}" if decided else ""


def _close(cells: Iterable[Cell]) -> str:
    differences = [abs(cell.difference) for cell in cells if cell.difference is not None]
    return f"{sum(d <= CLOSE for d in differences)} of {len(differences)}" if differences else ""


def _worst(cells: Iterable[Cell]) -> str:
    differences = [cell.difference for cell in cells if cell.difference is not None]
    return _percent(max(differences, key=abs)) if differences else ""


def _section(entry: Entry, stored: Stored, place: Place) -> Iterator[str]:
    yield f'<a id="{entry.name}"></a>'
    yield f"## {entry.paper}, {entry.where}: {entry.title}"
    yield ""
    yield f"**Run on** {stored.evidence.on or entry.on}."
    limits = LIMITS.get(entry.name, "")
    for title, text in (
        ("Compared", entry.how),
        ("Where it differs", entry.disagreement),
        ("Limits", limits),
    ):
        if text:
            yield ""
            yield f"**{title}.** {text}"
    yield ""
    head = ("", "paper", "ours", "unit", "difference", "class", "")
    yield from _table(head, (_row(cell) for cell in stored.evidence.cells))
    yield ""
    for number, chart in enumerate(stored.evidence.charts, 1):
        file = place.results / f"{chart_name(entry.name, number)}.svg"
        yield f"![{chart.title}]({file.relative_to(place.page.parent).as_posix()})"
        yield ""
    yield f"`{stored.command}`, seed {stored.seed}, {_took(stored.cpu_s)} of CPU time, simfl {stored.code}."
    yield ""


def chart_name(name: str, number: int) -> str:
    """Return the name of an entry's figure file, without its ending."""
    return name if number == 1 else f"{name}_{number}"


def _row(cell: Cell) -> tuple[str, ...]:
    difference = cell.difference
    told = "" if difference is None else _percent(difference)
    if cell.compare == "order":
        told = "as stated" if cell.agrees else "**not as stated**"
    elif cell.compare in ("at most", "at least"):
        told = "within the limit" if cell.agrees else "**beyond the limit**"
    elif cell.agrees is False and cell.bound is not None:
        told = f"**{told}**, beyond {100 * cell.bound:g} %"
    basis = "" if cell.agrees is None else cell.basis
    return cell.label, _value(cell.paper), _value(cell.ours), cell.unit, told, basis, cell.remark


def _value(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if value == int(value) and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.4g}"


def _percent(difference: float) -> str:
    if difference == 0:
        return "0 %"
    return f"{100 * difference:+.2g} %" if abs(difference) < 0.1 else f"{100 * difference:+.0f} %"


def _took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _line(head)
    yield "|" + "---|" * len(head)
    for row in rows:
        yield _line(row)


def _line(row: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in row) + " |"
