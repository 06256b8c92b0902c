"""The common look of all figures: sizes for a paper's columns, type, phases, protocols and legends."""

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

COLUMN, WIDE = 3.4, 7.0  # inches: the width of a paper's column, and of both
TEXT_LINE = 0.17  # inches of a line of text
INK = "#222222"
NOTEBOOK_DPI = 130  # a wide figure fills a cell's 900 pixels
MAX_NAMES = 4  # beside each other in a legend
LETTERS, SAMPLE = 120, 8  # beside each other in a wide figure; those that a line's sample takes with gaps

SETTINGS: dict[RcKeyType, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "simfl",
    "text.parse_math": False,  # a protocol's name may hold a dollar sign
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
    """Apply our settings to matplotlib's defaults, whatever the user's own are; also a decorator."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


class Picture(Figure):
    """A figure that a notebook shows at the end of a cell, which needs pyplot for any other."""

    def _repr_png_(self) -> bytes:
        with style(), BytesIO() as file:
            self.savefig(file, format="png", dpi=NOTEBOOK_DPI)
            return file.getvalue()


Lines = Sequence[tuple[int, str]]  # (place in the scenario, name) of the protocols that lines stand for


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
    """A figure of panels, `across` beside each other, over a legend of several lines.

    width, height: inches, without the legend. grid: the axes at whose ticks there are thin lines. look: of a
    line by its place; `protocol_line` unless given.
    """
    rows, columns = -(-count // across), min(across, count)
    names = [name for _, name in lines] if len(lines) > 1 else []
    widest = SAMPLE + max(map(len, names), default=0)
    legend_rows = -(-len(names) // max(1, min(MAX_NAMES, LETTERS // widest)))
    figure = Picture((width, height + TEXT_LINE * legend_rows), layout="constrained")
    cells = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for axes in cells[:count]:
        axes.grid(True, axis=grid)
    for axes in cells[count - columns : count]:
        axes.tick_params(labelbottom=True)  # there is none below it, whose numbers it could share
    for axes in cells[count:]:
        axes.remove()
    if names:
        samples = [Line2D([], [], label=name, **(look or protocol_line)(place)) for place, name in lines]
        _legend(figure, samples, -(-len(names) // legend_rows))
    return figure, cells[:count]


def legend(figure: Figure, *more: Artist) -> None:
    """Put a legend of the phases, and of more, below everything."""
    handles = [*(Patch(color=colour, label=phase) for phase, colour in chart.PHASE_COLOUR.items()), *more]
    _legend(figure, handles, len(handles))


def _legend(figure: Figure, handles: Sequence[Artist], columns: int) -> None:
    labels = [str(handle.get_label()) for handle in handles]
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def protocol_line(place: int) -> dict[str, Any]:
    """Colour and dashes of a protocol's line, by its place in the scenario: as on the page."""
    colour, dashes = chart.line(place)
    pattern = (0, tuple(map(float, dashes.split()))) if dashes else "solid"
    return {"color": INK if colour == "ink" else colour, "linestyle": pattern}


def pale(colour: str) -> tuple[float, float, float]:
    """Mix a colour with white."""
    red, green, blue = (1 - 0.4 * (1 - value) for value in to_rgb(colour))
    return red, green, blue
