"""The figure of who could learn what: a row for each coalition, a column for each user."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from simfl.privacy.leaks.exposure import Exposed
from simfl.reports.figures.style import COLUMN, INK, TEXT_LINE, panels, style

ALONE, TOGETHER, SUM, NOTHING, OWN = "#c1432e", "#eab39b", "#dbe6ee", "#f6f6f6", "#bbbbbb"
ROW = 0.2  # inches of a row


@style()
def exposure_figure(rows: Sequence[Exposed], users: Sequence[int], title: str) -> Figure:
    """Draw each user's exposure: its update alone, a combination with few others, or the sum only."""
    figure, (axes,) = panels(1, COLUMN, ROW * len(rows) + 5 * TEXT_LINE, grid="x")
    axes.grid(False)
    for y, row in enumerate(rows):
        for x, user in enumerate(users):
            colour, words = _cell(row, user)
            axes.add_patch(Rectangle((x + 0.03, y + 0.06), 0.94, 0.88, facecolor=colour, edgecolor="none"))
            ink = "white" if colour == ALONE else INK
            axes.text(x + 0.5, y + 0.52, words, ha="center", va="center", color=ink, fontsize=6)
    axes.set_xlim(0, len(users))
    axes.set_ylim(len(rows), 0)
    axes.set_xticks([x + 0.5 for x in range(len(users))], [f"user {user}" for user in users])
    axes.set_yticks([y + 0.5 for y in range(len(rows))], [_who(row.coalition) for row in rows])
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_title(title, loc="left", pad=14)
    return figure


def _who(coalition: tuple[int, ...]) -> str:
    return "server" + "".join(f" + {user}" for user in coalition)


def _cell(row: Exposed, user: int) -> tuple[str, str]:
    if user in row.coalition:
        return OWN, "colludes"
    circle = row.circles[user]
    if circle is None:
        return (SUM, "sum only") if user in row.summed else (NOTHING, "nothing")
    others = sorted(circle - {user})
    return (TOGETHER, f"with {', '.join(map(str, others))}") if others else (ALONE, "alone")
