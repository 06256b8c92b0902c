"""Figures from a run's summary: critical paths, accuracy, staleness, participation."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from simfl.reports import chart, tables
from simfl.reports.figures.style import COLUMN, INK, TEXT_LINE, WIDE, legend, panels, protocol_line, style
from simfl.reports.folder import Run
from simfl.runs.results import units
from simfl.trace.rows import CHECK_IN, PATH_PHASES, PHASES

PROTOCOL_GAP = 0.45
"""Space between the bars of two protocols, in bars."""
MAX_ACROSS = 4
"""Histograms beside each other."""
MAX_MARKS = 10
"""Lines of at most this number of values have a mark at each."""


class Bar(NamedTuple):
    """The critical path of a protocol at one drop-out rate."""

    name: str
    """Name of the protocol."""
    rate: str | None
    """The drop-out rate as text; None without one."""
    seconds: dict[str, float]
    """Seconds per aggregate by phase."""
    total_s: float
    """Seconds per aggregate."""


def _bars(run: Run) -> Iterator[Bar]:
    for name, rate, part in tables.by_rate(run.summary.protocols):
        means = tables.means("phases", part)
        if total := means["per_aggregate_s", ""]:
            by_phase = {phase: means["critical_s", phase] for phase in PHASES}
            by_phase[CHECK_IN] = means["check_in_s", ""]
            yield Bar(name, rate, {p: e.mean if e else 0.0 for p, e in by_phase.items()}, total.mean)


@style()
def breakdown(run: Run) -> Figure | None:
    """Return a figure with a bar for each protocol and drop-out rate: the phases of the critical path."""
    # Spans overlap, so that stacked they would be longer than the round. The parts of the path add up.
    drawn = list(_bars(run))
    if not drawn:
        return None
    figure, (axes,) = panels(1, COLUMN, 0.9 + TEXT_LINE * len(drawn), grid="x")
    names = [bar.name for bar in drawn]
    first = [k == 0 or names[k - 1] != name for k, name in enumerate(names)]
    # Bars of one protocol stand close together; a gap precedes each new one.
    heights = [k + PROTOCOL_GAP * sum(first[1 : k + 1]) for k in range(len(drawn))]
    left = [0.0] * len(drawn)
    has_check_in = any(bar.seconds[CHECK_IN] for bar in drawn)
    for phase in PATH_PHASES if has_check_in else PHASES:
        widths = [bar.seconds[phase] for bar in drawn]
        axes.barh(heights, widths, 0.8, left, color=chart.PATH_COLOUR[phase], label=phase)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for height, bar in zip(heights, drawn, strict=True):
        text, end = units.three_figures(bar.total_s), (bar.total_s, height)
        axes.annotate(text, end, (2, 0), textcoords="offset points", va="center")
    rates = [f"  {bar.rate} lost" if bar.rate else "" for bar in drawn]
    labels = [name * new + rate for name, new, rate in zip(names, first, rates, strict=True)]
    axes.set_yticks(heights, [label.strip() for label in labels])
    axes.tick_params("y", length=0)
    axes.invert_yaxis()
    # Room for the numbers behind the bars.
    axes.set_xlim(0, 1.2 * max(bar.total_s for bar in drawn))
    axes.set_xlabel(f"critical path (seconds of {run.time} time per aggregate)", loc="right")
    legend(figure, *[Patch(color=chart.PATH_COLOUR[CHECK_IN], label=CHECK_IN)] * has_check_in)
    return figure


@style()
def accuracy(run: Run) -> Figure | None:
    """Return a figure of the accuracy against time and against rounds, a line for each protocol.

    A target is a thin line across; a ring marks where a protocol first reached it.
    """
    evaluated = tables.evaluated(run.summary.protocols).items()
    # Numbered before those without an evaluation are left out: a protocol has one colour in all figures.
    series = [(index, *entry) for index, entry in enumerate(evaluated) if entry[1]]
    if not series:
        return None
    lines = [(index, name) for index, name, _ in series]
    figure, (by_time, by_round) = panels(2, WIDE, 2.0, across=2, lines=lines, sharey=True)
    marker = "o" if max(len(values) for *_, values in series) <= MAX_MARKS else ""
    for index, _, values in series:
        look = {**protocol_line(index), "marker": marker, "markersize": 2.5}
        shares = [share for _, share in values]
        by_time.plot([r.end_s for r, _ in values], shares, **look)
        # An evaluation follows its round: after round 0 one round is done.
        by_round.plot([r.index + 1 for r, _ in values], shares, **look)
    _target(run, by_time, by_round)
    by_time.set(xlabel=f"{run.time} time (s)", ylabel="test accuracy (share)")
    by_round.set_xlabel(f"{run.unit}s")
    by_round.xaxis.set_major_locator(MaxNLocator(integer=True))
    by_time.set_xlim(left=0)
    by_round.set_xlim(left=0)
    return figure


def _target(run: Run, by_time: Axes, by_round: Axes) -> None:
    targets = {name: entry.accuracy_target for name, entry in run.summary.protocols.items()}
    for value in {target.value for target in targets.values() if target}:
        for axes in (by_time, by_round):
            axes.axhline(value, color=INK, linewidth=0.5, zorder=1)
        by_time.annotate(f"target {value:g}", (0.01, value), xycoords=("axes fraction", "data"), va="bottom")
    for index, target in enumerate(targets.values()):
        if target and (reached := target.reached):
            look = {"color": protocol_line(index)["color"], "marker": "o", "markersize": 6}
            by_time.plot(reached.after_s, reached.measured, fillstyle="none", **look)
            by_round.plot(reached.rounds, reached.measured, fillstyle="none", **look)


@style()
def staleness(run: Run) -> Figure | None:
    """Return histograms of the staleness of aggregated updates, in versions."""
    stale = {name: entry.staleness for name, entry in run.summary.protocols.items() if entry.staleness}
    if not stale:
        return None
    width, height = COLUMN if len(stale) < 3 else WIDE, 0.4 + 1.3 * -(-len(stale) // MAX_ACROSS)
    figure, cells = panels(len(stale), width, height, MAX_ACROSS, grid="y", sharex=True, sharey=True)
    for axes, (name, staleness) in zip(cells, stale.items(), strict=True):
        counts = {int(tau): count for tau, count in staleness.items()}
        taus = range(max(counts) + 1)
        axes.bar(taus, [counts.get(tau, 0) for tau in taus], 0.85, color=INK)
        axes.set_title(name)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    figure.supxlabel("staleness (versions of the global model)", fontsize=7)
    figure.supylabel("updates", fontsize=7)
    return figure


@style()
def participation(run: Run) -> Figure | None:
    """Return a figure of T, F and C after each round (Multi-RoundSecAgg Fig. 3), where users are selected.

    T is an interval if its search ended early.
    """
    protocols = enumerate(run.summary.protocols.items())
    entries = [(index, name, entry.chosen) for index, (name, entry) in protocols if entry.chosen]
    if not entries:
        return None
    lines = [(index, name) for index, name, _ in entries]
    figure, (left, middle, right) = panels(3, WIDE, 2.0, across=3, lines=lines)
    for index, _, shares in entries:
        look, rounds = protocol_line(index), range(1, len(shares.F) + 1)
        _privacy(left, rounds, shares.T_weak, look)
        middle.plot(rounds, shares.F, **look)
        right.plot(rounds, shares.C, **look)
    labels = "privacy T (users)", "fairness gap F (share of rounds)", "cardinality C (users)"
    for axes, label in zip((left, middle, right), labels, strict=True):
        axes.set(xlabel="rounds", ylabel=label)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    return figure


def _privacy(axes: Axes, rounds: range, bounds: list[list[int] | None], look: dict[str, Any]) -> None:
    # NaN leaves a gap in the line.
    low, high = ([math.nan if T is None else T[end] for T in bounds] for end in (0, 1))
    axes.plot(rounds, low, drawstyle="steps-post", **look)
    if low != high:
        axes.fill_between(rounds, low, high, color=look["color"], alpha=0.12, linewidth=0, step="post")
