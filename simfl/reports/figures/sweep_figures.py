"""The figure of a sweep: a round's total time as the cohort grows (LightSecAgg Fig. 6)."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from simfl.errors import BadInput
from simfl.reports.figures.style import (
    COLUMN,
    WIDE,
    grid,
    legend_height,
    lines_legend,
    panels,
    protocol_line,
    style,
)
from simfl.results import strict_json

FIXED = ("point", "protocol", "measure", "phase", "seeds", "mean", "half_95")
"""The columns of `means.csv` beside those of what varies."""

USERS = "population.users"

ACROSS = 3
"""Panels beside each other."""


@dataclass(frozen=True)
class Total:
    """Mean seconds of a round of a protocol at a point, and half of the 95 % interval (0 for one seed)."""

    point: dict[str, Any]
    protocol: str
    mean_s: float
    half_s: float


def read(path: Path) -> list[Total]:
    """The totals of a sweep's `means.csv`; a point under which no round was completed has none.

    Raises:
        BadInput: it cannot be read, or is not such a table.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["measure"] == "total_s" and row["mean"]]
        return [
            Total(
                {key: _value(text) for key, text in row.items() if key not in FIXED},
                row["protocol"],
                _finite(row["mean"]),
                _finite(row["half_95"] or "0"),
            )
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise BadInput(f"{path}: not the means of a sweep ({type(error).__name__}: {error})") from None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


def _value(text: str) -> Any:
    """A value as `means.csv` has it: JSON, or text as it is."""
    try:
        return strict_json.parse(text)
    except ValueError:
        return text


Series = dict[str, dict[str, list[tuple[float, float, float]]]]
"""Panel -> protocol -> (what varies along the axis, mean, half of the interval), ascending."""


def series(totals: list[Total]) -> tuple[str, Series]:
    """What the axis shows (the users, if they vary; else the first number that does), and the lines.

    The other numbers and words that vary make the panels; lists and mappings are taken to go along with
    them, as T and D with the users, unless points would fall together.

    Raises:
        BadInput: no number varies.
    """
    across = _across(totals)
    for simple in (True, False):
        out: Series = {}
        for total in totals:
            rest = {k: v for k, v in total.point.items() if k != across and not (simple and _compound(v))}
            lines = out.setdefault(_told(rest), {})
            lines.setdefault(total.protocol, []).append((total.point[across], total.mean_s, total.half_s))
        listed = [line for lines in out.values() for line in lines.values()]
        if all(len({x for x, *_ in line}) == len(line) for line in listed):
            break
    for line in listed:
        line.sort()
    return across, out


def _across(totals: list[Total]) -> str:
    keys = dict.fromkeys(key for total in totals for key in total.point)
    for key in sorted(keys, key=lambda key: key != USERS):
        values = [total.point[key] for total in totals]
        if all(type(value) in (int, float) for value in values) and len(set(values)) > 1:
            return key
    raise BadInput(f"nothing to draw a line over: no number varies ({', '.join(keys) or 'nothing does'})")


def _compound(value: Any) -> bool:
    return isinstance(value, dict | list)


def _told(values: dict[str, Any]) -> str:
    """A panel in words."""
    return ", ".join(
        f"{value:.0%} lost" if key == "dropout.rate" and type(value) in (int, float) else f"{key} = {value}"
        for key, value in values.items()
    )


@style()
def total(totals: list[Total]) -> Figure:
    """A line a protocol with its 95 % intervals over seeds, a panel for each drop-out rate."""
    across, found = series(totals)
    protocols = list(dict.fromkeys(total.protocol for total in totals))
    columns = min(ACROSS, len(found))
    rows = -(-len(found) // columns)
    size = COLUMN if columns == 1 else WIDE, 0.3 + 1.8 * rows + legend_height(protocols)
    figure, grid_of = panels(*size, rows, columns, sharex=True, sharey=True)
    cells = [axes for row in grid_of for axes in row]
    for axes, (name, lines) in zip(cells, found.items(), strict=False):
        for protocol, line in lines.items():
            x, mean, half = zip(*line, strict=True)
            how = protocol_line(protocols.index(protocol))
            axes.errorbar(x, mean, half, marker="o", markersize=2, capsize=2.5, elinewidth=0.8, **how)
        axes.set_title(name)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("users" if across == USERS else across)
        axes.label_outer()
        grid(axes)
    over_seeds = "\nmean and 95 % interval" if any(one.half_s for one in totals) else ""
    for row in grid_of:
        row[0].set_ylabel(f"virtual time per round (s){over_seeds}")
    for axes in cells[len(found) :]:
        axes.remove()
    lines_legend(figure, list(enumerate(protocols)))
    return figure
