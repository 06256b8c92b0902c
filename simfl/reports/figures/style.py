"""The common style of all figures: sizes for a paper's columns, type, phases, protocols and legends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from simfl.reports import chart

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

COLUMN, WIDE = 3.4, 7.0
"""Widths in inches of a paper's column, and of both."""
TEXT_LINE = 0.17
"""Height in inches of a line of text."""
INK = "#222222"
NOTEBOOK_DPI = 130
"""Dots per inch at which a wide figure fills a cell's 900 pixels."""
MAX_NAMES = 4
"""Names beside each other in a legend."""
LETTERS, SAMPLE = 120, 8
"""Letters beside each other in a wide figure, and the width in letters of a line's sample with gaps."""

SETTINGS: dict[RcKeyType, Any] = {
    # Text stays text, which a paper's author can search and edit. A fixed salt makes the ids of elements the
    # same each time.
    "svg.fonttype": "none",
    "svg.hashsalt": "simfl",
    # A protocol's name may have a dollar sign.
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), 7),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 7),
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "axes.linewidth": 0.6,
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.edgecolor", "text.color"), INK),
    "lines.linewidth": 1.2,
    "grid.linewidth": 0.4,
    "grid.color": "#cccccc",
    "axes.axisbelow": True,
}


@contextmanager
def style() -> Iterator[None]:
    """Apply our settings to matplotlib's defaults, not to the user's settings; also a decorator."""
    with matplotlib.rc_context():
        # A user's matplotlibrc must not change our figures, and our settings must not change the user's.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


class Picture(Figure):
    """A figure that a notebook shows at the end of a cell, which needs pyplot for any other."""

    def _repr_png_(self) -> bytes:
        with style(), BytesIO() as file:
            self.savefig(file, format="png", dpi=NOTEBOOK_DPI)
            return file.getvalue()


Lines = Sequence[tuple[int, str]]
"""Index in the scenario and name of each protocol with a line."""


def panels(
    count: int,
    width: float,
    height: float,
    across: int = 1,
    lines: Lines = (),
    grid: Literal["both", "x", "y"] = "both",
    look: Callable[[int], dict[str, Any]] | None = None,
    **shared: Any,
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, over a legend of the lines.

    Args:
        count: Number of panels.
        width: Width in inches.
        height: Height in inches, without the legend.
        across: Panels beside each other.
        lines: Lines of the legend; of one line there is no legend.
        grid: Axes whose ticks have thin lines.
        look: Returns the style of a line by its index; `protocol_line` unless given.
        shared: Axes that panels share (`sharex`, `sharey`).
    """
    rows, columns = -(-count // across), min(across, count)
    names = [name for _, name in lines] if len(lines) > 1 else []
    widest = SAMPLE + max(map(len, names), default=0)
    # Long names need wide columns, so fewer of them stand beside each other.
    legend_rows = -(-len(names) // max(1, min(MAX_NAMES, LETTERS // widest)))
    figure = Picture((width, height + TEXT_LINE * legend_rows), layout="constrained")
    cells = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for axes in cells[:count]:
        axes.grid(True, axis=grid)
    for axes in cells[count - columns : count]:
        # No panel below it shows the numbers of a shared axis.
        axes.tick_params(labelbottom=True)
    for axes in cells[count:]:
        # Cells of the last row without a panel.
        axes.remove()
    if names:
        samples = [Line2D([], [], label=name, **(look or protocol_line)(index)) for index, name in lines]
        _legend(figure, samples, -(-len(names) // legend_rows))
    return figure, cells[:count]


def legend(figure: Figure, *more: Artist) -> None:
    """Put a legend of the phases, and of more, below the figure."""
    handles = [*(Patch(color=colour, label=phase) for phase, colour in chart.PHASE_COLOUR.items()), *more]
    _legend(figure, handles, MAX_NAMES if figure.get_figwidth() < WIDE else len(handles))


def _legend(figure: Figure, handles: Sequence[Artist], columns: int) -> None:
    labels = [str(handle.get_label()) for handle in handles]
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def protocol_line(index: int) -> dict[str, Any]:
    """Return colour and dashes of a protocol's line by its index in the scenario, as on the page."""
    colour, dashes = chart.line(index)
    pattern = (0, tuple(map(float, dashes.split()))) if dashes else "solid"
    return {"color": INK if colour == "ink" else colour, "linestyle": pattern}


def pale(colour: str) -> tuple[float, float, float]:
    """Return a colour mixed with white."""
    red, green, blue = (1 - 0.4 * (1 - value) for value in to_rgb(colour))
    return red, green, blue
