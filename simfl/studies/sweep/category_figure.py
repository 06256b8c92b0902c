"""The figure of a sweep over words: a round's time for each combination, a dot a protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simfl.reports.figures.style import COLUMN, TEXT_LINE, WIDE, panels, protocol_line, style
from simfl.studies.sweep.plan import plain
from simfl.studies.sweep.total_figure import Total

MARKERS = "osD^vP*X"  # of protocols, in turn
MAX_ACROSS = 2  # panels beside each other
ROW, APART = 0.23, 0.22  # inches of a row; of it, between the dots of two protocols
Point = dict[str, Any]


def varied(points: Sequence[Point]) -> list[str]:
    """Return the keys that tell points apart, words first: a key that goes along with others is left out."""
    keys = list(dict.fromkeys(key for point in points for key in point))
    keys.sort(key=lambda key: not all(isinstance(point.get(key), str) for point in points))
    different = len({_values(point, keys) for point in points})
    for key in reversed(keys):
        without = [other for other in keys if other != key]
        if len({_values(point, without) for point in points}) == different:
            keys = without
    return keys


def _values(point: Point, keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(plain(point.get(key)) for key in keys)


def in_words(key: str, value: Any) -> str:
    """Return a value as a row's label has it.

    >>> in_words("network.peers", "direct"), in_words("dropout.rate", 0.3)
    ('direct', '30 % lost')
    >>> in_words("network.server", {"uplink_mbps": 1000, "downlink_mbps": 1000})
    'server 1000 Mbit/s'
    """
    if isinstance(value, str):
        return value
    if key == "dropout.rate" and isinstance(value, float):
        return f"{value:.0%}".replace("%", " % lost")
    name, unit = key.rpartition(".")[2], ""
    if isinstance(value, dict) and len({plain(part) for part in value.values()}) == 1:
        unit = " Mbit/s" if all(part.endswith("_mbps") for part in value) else ""
        value = next(iter(value.values()))
    return f"{name} {plain(value)}{unit}"


def has_words(totals: Sequence[Total]) -> bool:
    """Return True if a word is among what tells the points apart."""
    points = [total.point for total in totals]
    return any(isinstance(point.get(key), str) for key in varied(points) for point in points)


@style()
def categories(totals: list[Total]) -> Figure:
    """A panel for each value of the first word, a row for each combination of the rest."""
    across, *rest = varied([total.point for total in totals])
    names = list(dict.fromkeys(plain(total.point[across]) for total in totals))
    rows = list(dict.fromkeys(_row(total, rest) for total in totals))
    protocols = list(dict.fromkeys(total.protocol for total in totals))
    columns = min(MAX_ACROSS, len(names))
    height = (0.55 + ROW * len(rows)) * -(-len(names) // columns) + TEXT_LINE
    width = WIDE if columns > 1 else COLUMN
    figure, cells = panels(len(names), width, height, columns, grid="both", sharey=True)
    for axes, name in zip(cells, names, strict=True):
        shown = [total for total in totals if plain(total.point[across]) == name]
        _panel(axes, shown, rows, rest, protocols)
        axes.set_title(in_words(across, name))
    cells[0].set_yticks(range(len(rows)), rows)
    cells[0].set_ylim(len(rows) - 0.5, -0.5)
    handles = [Line2D([], [], label=name, **_dot(k)) for k, name in enumerate(protocols)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _panel(
    axes: Axes, totals: list[Total], rows: list[str], rest: Sequence[str], protocols: list[str]
) -> None:
    for total in totals:
        place = protocols.index(total.protocol)
        y = rows.index(_row(total, rest)) + APART * (place - (len(protocols) - 1) / 2)
        axes.errorbar(total.mean_s, y, xerr=total.half_s or None, **_dot(place))
    axes.set_xlim(left=0)
    axes.set_xlabel("virtual time per aggregate (s)")


def _row(total: Total, rest: Sequence[str]) -> str:
    return ", ".join(in_words(key, total.point[key]) for key in rest if key in total.point)


def _dot(place: int) -> dict[str, Any]:
    colour = protocol_line(place)["color"]
    marker = MARKERS[place % len(MARKERS)]
    return {"color": colour, "marker": marker, "markersize": 4.5, "linestyle": "none"}
