"""What all figures share: sizes for a paper's columns, type, and how phases and protocols look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from simfl.reports import palette
from simfl.results.trace import PHASES

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

COLUMN, WIDE = 3.4, 7.0
"""Inches: the width of a paper's column, and of both."""

INK = "#222222"

ROW = 0.17
"""Inches of a line of text."""

ACROSS = 4
"""Names or panels beside each other at most."""

LETTERS, SAMPLE = 120, 8
"""What fits beside each other in a wide figure, and what a line's sample takes of it with the gaps."""

SETTINGS: dict[RcKeyType, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "simfl",
    "text.parse_math": False,  # a protocol's name may hold a dollar sign
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.labelsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "text.color": INK,
    "lines.linewidth": 1.2,
    "grid.linewidth": 0.4,
    "grid.color": "#cccccc",
    "axes.axisbelow": True,
    "hatch.linewidth": 0.4,
}


@contextmanager
def style() -> Iterator[None]:
    """matplotlib's defaults with our settings, whatever the user's own are; also a decorator."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def panels(width: float, height: float, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Figure, Any]:
    """A figure of so many inches, and its axes [rows][columns]."""
    figure = Figure((width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **more)


def protocol_line(place: int) -> dict[str, Any]:
    """How the line of a protocol looks, by its place in the scenario: as on the page."""
    colour, dashes = palette.line(place)
    pattern = (0, tuple(map(float, dashes.split()))) if dashes else "solid"
    return {"color": INK if colour == "ink" else colour, "linestyle": pattern}


def pale(colour: str, part: float = 0.4) -> tuple[float, float, float]:
    """A colour mixed with white: so much of it."""
    red, green, blue = (1 - part * (1 - value) for value in to_rgb(colour))
    return red, green, blue


def phase_patches() -> list[Patch]:
    """The legend of the phases."""
    return [Patch(color=palette.PHASE[phase], label=phase) for phase in PHASES]


def legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """A legend below everything, in one line."""
    labels = [str(handle.get_label()) for handle in handles]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def lines_legend(figure: Figure, names: Sequence[tuple[int, str]]) -> None:
    """A legend of protocols (place in the scenario, name) below everything, if there are several."""
    if len(names) > 1:
        handles = [Line2D([], [], **protocol_line(place)) for place, _ in names]
        told = [name for _, name in names]
        columns = -(-len(told) // _rows(told))
        figure.legend(handles, told, loc="outside lower center", ncols=columns)


def legend_height(names: Sequence[str]) -> float:
    """Inches that `lines_legend` takes."""
    return ROW * _rows(names) if len(names) > 1 else 0.0


def _rows(names: Sequence[str]) -> int:
    """Of a legend in which no line is wider than the figure."""
    across = max(1, min(ACROSS, LETTERS // (SAMPLE + max(map(len, names)))))
    return -(-len(names) // across)


def grid(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Thin lines at the ticks of one axis or of both, behind what is drawn."""
    axes.grid(True, axis=axis)
