"""The figures of a run that are made from its summary: where time goes, what is learned, who takes part."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from simfl.reports import palette, tables
from simfl.reports.advice import advise
from simfl.reports.figures.style import (
    ACROSS,
    COLUMN,
    INK,
    ROW,
    WIDE,
    grid,
    legend,
    legend_height,
    lines_legend,
    panels,
    phase_patches,
    protocol_line,
    style,
)
from simfl.reports.folder import Run
from simfl.results.trace import PHASES
from simfl.virtual_time import NS


@dataclass(frozen=True)
class Bar:
    """Seconds of each phase for rounds of one protocol and drop-out rate; `total_s` is what they last."""

    name: str
    rate: str | None
    seconds: dict[str, float]
    total_s: float


def bars(run: Run) -> list[Bar]:
    """The mean critical path of each protocol's completed rounds at each drop-out rate, by phase.

    Of an asynchronous run it is the path of the run as a whole, divided by its aggregations: these overlap,
    and the path of one of them alone would be cut off at its beginning.
    """
    if not run.buffered:
        return [
            Bar(
                row["name"],
                row["rate"],
                {p: row["means"]["critical_s", p].mean for p in PHASES},
                row["means"]["total_s", ""].mean,
            )
            for row in tables.breakdown(run)
        ]
    out = []
    for name, rounds in run.rounds.items():
        advice = advise(run.traces[name], rounds)
        if advice.rounds:
            each = advice.rounds * NS
            phases = {p: sum(s.ns for s in advice.shares if s.phase == p) / each for p in PHASES}
            out.append(Bar(name, None, phases, advice.total_ns / each))
    return out


@style()
def breakdown(run: Run) -> Figure | None:
    """A bar for each protocol and drop-out rate: the phases of the critical path, one after the other.

    The critical path and not the spans: it books each nanosecond of a round to one phase, so that the parts
    of a bar add up to its total. Spans overlap where users are in different phases at one time; stacked,
    they would be longer than the round.
    """
    drawn = bars(run)
    if not drawn:
        return None
    figure, ((axes,),) = panels(COLUMN, 0.9 + ROW * len(drawn))
    places, at, before = [], 0.0, drawn[0].name
    for bar in drawn:
        at += 0.45 * (bar.name != before)  # a gap between protocols
        places.append(at)
        at, before = at + 1, bar.name
    left = [0.0] * len(drawn)
    for phase in PHASES:
        wide = [bar.seconds[phase] for bar in drawn]
        axes.barh(places, wide, 0.8, left, color=palette.PHASE[phase], label=phase)
        left = [a + b for a, b in zip(left, wide, strict=True)]
    for place, bar in zip(places, drawn, strict=True):
        axes.annotate(
            _short(bar.total_s), (bar.total_s, place), (2, 0), textcoords="offset points", va="center"
        )
    axes.set_yticks(places, _bar_labels(drawn))
    axes.tick_params("y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.2 * max(bar.total_s for bar in drawn))
    axes.set_xlabel(f"critical path (seconds of virtual time per {run.unit})", loc="right")
    grid(axes, "x")
    legend(figure, phase_patches())
    return figure


def _bar_labels(drawn: list[Bar]) -> list[str]:
    """The drop-out rate, and before the first one of a protocol its name."""
    out, before = [], None
    for bar in drawn:
        name = bar.name if bar.name != before else ""
        out.append(f"{name}  {'' if bar.rate is None else f'{bar.rate} lost'}".strip())
        before = bar.name
    return out


def _short(value: float) -> str:
    """Three figures."""
    return f"{value:.{3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


@style()
def accuracy(run: Run) -> Figure | None:
    """Accuracy on the test set against virtual time and against rounds, a line a protocol."""
    series = [
        (place, name, [(r.end_s, r.index + 1, r.accuracy) for r in entry.rounds])
        for place, (name, entry) in enumerate(run.summary.protocols.items())
    ]
    known = [(k, name, [point for point in listed if point[2] is not None]) for k, name, listed in series]
    known = [(k, name, listed) for k, name, listed in known if listed]
    if not known:
        return None
    few = max(len(listed) for *_, listed in known) <= 10
    height = 2.0 + legend_height([name for _, name, _ in known])
    figure, ((by_time, by_round),) = panels(WIDE, height, columns=2, sharey=True)
    for place, _, listed in known:
        times, rounds, values = zip(*listed, strict=True)
        how = {**protocol_line(place), "marker": "o" if few else "", "markersize": 2.5}
        by_time.plot(times, values, **how)
        by_round.plot(rounds, values, **how)
    by_time.set_xlabel("virtual time (s)")
    by_time.set_ylabel("accuracy on the test set (share)")
    by_round.set_xlabel(f"{run.unit}s")
    by_round.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (by_time, by_round):
        axes.set_xlim(left=0)
        grid(axes)
    lines_legend(figure, [(place, name) for place, name, _ in known])
    return figure


@style()
def staleness(run: Run) -> Figure | None:
    """How many updates were aggregated how many versions after the one that they started from."""
    found = {
        name: {int(tau): count for tau, count in entry.staleness.items()}
        for name, entry in run.summary.protocols.items()
        if entry.staleness
    }
    if not found:
        return None
    columns = min(ACROSS, len(found))
    rows = -(-len(found) // columns)
    size = COLUMN if columns < 3 else WIDE, 0.4 + 1.3 * rows
    figure, grid_of = panels(*size, rows, columns, sharex=True, sharey=True)
    cells = [axes for row in grid_of for axes in row]
    for axes, (name, counts) in zip(cells, found.items(), strict=False):
        taus = range(max(counts) + 1)
        axes.bar(taus, [counts.get(tau, 0) for tau in taus], 0.85, color=INK)
        axes.set_title(name)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        grid(axes, "y")
    for axes in cells[len(found) :]:
        axes.remove()
    figure.supxlabel("staleness (versions of the global model)", fontsize=7)
    figure.supylabel("updates", fontsize=7)
    return figure


@style()
def participation(run: Run) -> Figure | None:
    """T, F and C after each round (Multi-RoundSecAgg Fig. 3), where not everyone is selected.

    T is the weak privacy, the fewest users whose updates can be summed apart; where its search ended early,
    the interval that it lies in. F is the fairness gap, C the mean number of users in an aggregate.
    """
    entries = [
        (place, name, entry.chosen)
        for place, (name, entry) in enumerate(run.summary.protocols.items())
        if entry.chosen
    ]
    if not entries:
        return None
    height = 2.0 + legend_height([name for _, name, _ in entries])
    figure, ((left, middle, right),) = panels(WIDE, height, columns=3)
    for place, _, shares in entries:
        how = protocol_line(place)
        rounds = range(1, len(shares.F) + 1)
        _privacy(left, rounds, shares.T_weak, how)
        middle.plot(rounds, shares.F, **how)
        right.plot(rounds, shares.C, **how)
    labels = (
        "privacy T (users)",
        "fairness gap F (share of rounds)",
        "cardinality C (users)",
    )
    for axes, label in zip((left, middle, right), labels, strict=True):
        axes.set_xlabel("rounds")
        axes.set_ylabel(label)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        grid(axes)
    lines_legend(figure, [(place, name) for place, name, _ in entries])
    return figure


def _privacy(axes: Axes, rounds: range, found: list[list[int] | None], how: dict[str, Any]) -> None:
    low = [math.nan if T is None else T[0] for T in found]
    high = [math.nan if T is None else T[1] for T in found]
    axes.plot(rounds, low, drawstyle="steps-post", **how)
    if low != high:
        axes.fill_between(rounds, low, high, color=how["color"], alpha=0.12, linewidth=0, step="post")
