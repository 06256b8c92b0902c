"""Each user's exposure to each coalition, and its figure: a row for each coalition, a column for each user.

A user's exposure is the smallest set of users with it over which more than the sum is known. Sets are tried
by size, so the search takes 2^N views of N honest users: the figure is for the few users of `simfl privacy
proof`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from simfl.dataplane.terms import Coordinate
from simfl.privacy.leaks.elimination import Line, within
from simfl.privacy.leaks.invariants import allowed_sums
from simfl.privacy.leaks.views import Transcript
from simfl.reports.figures.style import COLUMN, INK, TEXT_LINE, panels, style

ALONE, TOGETHER, SUM, NOTHING, COLLUDES = "#c1432e", "#eab39b", "#dbe6ee", "#f6f6f6", "#bbbbbb"
ROW_INCHES = 0.2


@dataclass(frozen=True)
class Exposed:
    """A coalition's knowledge of each honest user."""

    coalition: tuple[int, ...]
    """Users who collude with the server."""
    exposing: dict[int, frozenset[int] | None]
    """By honest user, the smallest set with it over which more than the sum is known; None without one."""
    summed: frozenset[int]
    """Honest users whose updates are in a known combination."""


def exposure(seen: Transcript, coalitions: Sequence[tuple[int, ...]]) -> list[Exposed]:
    """Return the exposure of the users of a round to each coalition."""
    base, rows = seen.view(), []
    for coalition in coalitions:
        knowledge = seen.view(coalition, base)
        allowed, honest = allowed_sums(seen, knowledge), [u for u in seen.users if u not in coalition]
        exposing: dict[int, frozenset[int] | None] = dict.fromkeys(honest)
        for size in range(1, len(honest) + 1):
            for subset in map(frozenset, combinations(honest, size)):
                # Sets of users that are all exposed by smaller ones show nothing.
                if any(exposing[user] is None for user in subset):
                    basis = knowledge.updates(lambda symbol, subset=subset: symbol.user in subset)  # type: ignore[misc]
                    leaks = (line for line in basis.values() if not within(line, allowed, knowledge.q))
                    for user in _users(leaks):
                        exposing[user] = exposing[user] or subset
        rows.append(Exposed(coalition, exposing, _users(knowledge.basis.values())))
    return rows


def _users(lines: Iterable[Line]) -> frozenset[int]:
    return frozenset(s.user for line in lines for s in line if isinstance(s, Coordinate))


@style()
def exposure_figure(rows: Sequence[Exposed], users: Sequence[int], title: str) -> Figure:
    """Draw each user's exposure: its update alone, a combination with few others, or the sum only."""
    figure, (axes,) = panels(1, COLUMN, ROW_INCHES * len(rows) + 5 * TEXT_LINE, grid="x")
    axes.grid(False)
    for y, row in enumerate(rows):
        for x, user in enumerate(users):
            colour, words = _cell(row, user)
            axes.add_patch(Rectangle((x + 0.03, y + 0.06), 0.94, 0.88, facecolor=colour, edgecolor="none"))
            ink = "white" if colour == ALONE else INK
            axes.text(x + 0.5, y + 0.52, words, ha="center", va="center", color=ink, fontsize=6)
    axes.set_xlim(0, len(users))
    # From top to bottom: the server alone is the first row.
    axes.set_ylim(len(rows), 0)
    axes.set_xticks([x + 0.5 for x in range(len(users))], [f"user {user}" for user in users])
    adversaries = ["server" + "".join(f" + {user}" for user in row.coalition) for row in rows]
    axes.set_yticks([y + 0.5 for y in range(len(rows))], adversaries)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_title(title, loc="left", pad=14)
    return figure


def _cell(row: Exposed, user: int) -> tuple[str, str]:
    """Return colour and text of a user's cell."""
    if user in row.coalition:
        return COLLUDES, "colludes"
    exposing = row.exposing[user]
    if exposing is None:
        return (SUM, "sum only") if user in row.summed else (NOTHING, "nothing")
    others = sorted(exposing - {user})
    return (TOGETHER, f"with {', '.join(map(str, others))}") if others else (ALONE, "alone")
