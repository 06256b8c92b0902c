"""The figures of the papers, drawn from stored values."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from papers.entry import Chart
from papers.paper_page import chart_name
from papers.store import Stored
from simfl.reports.figures.style import WIDE, panels, protocol_line, style

HEIGHT = 2.6
"""Inches of a chart without its legend."""


def of_result(stored: Stored) -> Mapping[str, Figure]:
    """The figures of an entry's result, by the name of their files."""
    return {
        chart_name(stored.name, number): draw(chart) for number, chart in enumerate(stored.evidence.charts, 1)
    }


@style()
def draw(chart: Chart) -> Figure:
    """A chart's lines, with a mark at each value where they are few."""
    figure, (ax,) = panels(
        1, WIDE, HEIGHT, lines=[(place, line.name) for place, line in enumerate(chart.lines)]
    )
    for place, line in enumerate(chart.lines):
        marker = "o" if len(line.x) <= 20 else None
        ax.plot(line.x, line.y, label=line.name, marker=marker, markersize=2.5, **protocol_line(place))
    if chart.log_x is not None:
        ax.set_xscale("log", base=chart.log_x)
        _plain(ax.xaxis, chart.log_x)
    if chart.log_y is not None:
        ax.set_yscale("log", base=chart.log_y)
        _plain(ax.yaxis, chart.log_y)
    ax.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
    return figure


def _plain(axis: Axis, base: int) -> None:
    """Numbers at the ticks of a logarithmic axis, and not the mathematics that our style leaves unparsed."""
    axis.set_major_formatter(LogFormatter(base))
    axis.set_minor_formatter(LogFormatter(base, labelOnlyBase=False))
