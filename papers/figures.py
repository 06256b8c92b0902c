"""The figures of the papers, drawn from stored values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter

from papers.entry import Chart
from papers.paper_page import chart_name
from papers.store import Stored
from simfl.reports.figures.style import WIDE, panels, protocol_line, style

HEIGHT = 2.6
"""Inches of a chart without its legend."""
FEW = 3  # lines that look as a scenario's protocols do, over a legend
MARKED = 20  # values of a line that are marked
NAME_POINTS = 8.5  # from the name of one line to the next
MOST_NAMES = 16  # that find room beside the ends of lines
COLOURS = ("#222222", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's, distinguishable without full colour vision, less a yellow too pale on white."""
DASHES = ("-", (0, (6, 2)), (0, (2, 2)))
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


def of_result(stored: Stored) -> Mapping[str, Figure]:
    """The figures of an entry's result, by the name of their files."""
    return {
        chart_name(stored.name, number): draw(chart) for number, chart in enumerate(stored.evidence.charts, 1)
    }


@style()
def draw(chart: Chart) -> Figure:
    """The lines of a chart that have values, marked there, and beyond `FEW` each with its name at its end."""
    many = len(chart.lines) > FEW
    direct = FEW < len(chart.lines) <= MOST_NAMES
    named = [] if direct else [(place, line.name) for place, line in enumerate(chart.lines)]
    figure, (ax,) = panels(1, WIDE, HEIGHT, lines=named, look=_look if many else protocol_line)
    for place, line in enumerate(chart.lines):
        if not line.x:  # such as the accuracy of a scheme that completed no round
            continue
        look = _look(place) if many else {**protocol_line(place), "marker": "o", "markersize": 2.5}
        if len(line.x) > MARKED:  # some, at other places than the other lines' marks
            step = -(-len(line.x) // MARKED)
            look |= {"markevery": (place * step // len(chart.lines), step)} if many else {"marker": None}
        ax.plot(line.x, line.y, label=line.name, **look)
    if chart.log_x is not None:
        ax.set_xscale("log", base=chart.log_x)
        _plain(ax.xaxis, chart.log_x)
    if chart.log_y is not None:
        ax.set_yscale("log", base=chart.log_y)
        _plain(ax.yaxis, chart.log_y)
    ax.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
    if direct:
        _name_ends(figure, ax)
    return figure


def _look(place: int) -> dict[str, Any]:
    """Colour, dashes and mark of one of many lines, of which no two are alike in print without colours."""
    dashes = DASHES[place // len(COLOURS) % len(DASHES)]
    mark = MARKS[place % len(MARKS)]
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": dashes, "marker": mark, "markersize": 3.5}


def _name_ends(figure: Figure, ax: Axes) -> None:
    """Write each line's name beside its end, led there in its colour; names that are close move apart."""
    figure.draw_without_rendering()  # lays out: later, heights stay as they are
    box, lines = ax.get_window_extent(), sorted(ax.get_lines(), key=_end_pixels)
    gap = NAME_POINTS * figure.dpi / 72
    places = apart([_end_pixels(line) for line in lines], gap, box.y0, box.y1)
    for line, y in zip(lines, places, strict=True):
        leader = {"arrowstyle": "-", "color": line.get_color(), "lw": 0.8, "relpos": (0, 0.5)}
        ax.annotate(
            str(line.get_label()), _end(line), (1.03, (y - box.y0) / box.height),
            textcoords="axes fraction", va="center", arrowprops={**leader, "shrinkA": 1, "shrinkB": 3},
        )  # fmt: skip


def _end_pixels(line: Line2D) -> float:
    """Return the height of a line's last value in the figure."""
    return float(line.get_transform().transform(_end(line))[1])


def _end(line: Line2D) -> tuple[float, float]:
    x, y = np.asarray(line.get_xydata())[-1]
    return float(x), float(y)


def apart(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return ascending heights moved apart to a gap, within bounds that have room for all of them.

    >>> apart([0, 1, 1, 9], 2, 0, 10)
    [0, 2, 4, 9]
    """
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap if placed else low))
    bound = high
    for at in reversed(range(len(placed))):
        placed[at] = min(placed[at], bound)
        bound = placed[at] - gap
    return placed


def _plain(axis: Axis, base: int) -> None:
    """Numbers at the ticks of a logarithmic axis, and not the mathematics that our style leaves unparsed."""
    axis.set_major_formatter(LogFormatter(base))
    axis.set_minor_formatter(LogFormatter(base, labelOnlyBase=False))
