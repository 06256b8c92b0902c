"""The timing diagram of one round per protocol, as LightSecAgg Fig. 5: who does what when.

A row is the server or a user: full colour where it computes, pale where a message is on the user's link,
nothing where it waits. A user's training is in the lower half of its row, so that an offline phase that
runs beside training is seen beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from simfl.reports import palette
from simfl.reports import trace_series as read_off
from simfl.reports.figures.style import (
    INK,
    ROW,
    WIDE,
    grid,
    legend,
    pale,
    panels,
    phase_patches,
    style,
)
from simfl.reports.folder import Run
from simfl.results.metrics import Round
from simfl.results.trace import PHASES, SERVER, Sent, Step, Trace
from simfl.virtual_time import NS

PANELS = 6
"""At most so many on a figure."""

LINE = 0.8
"""Points: how thick the line at the end of a round is."""

FINE = 2000
"""Pauses shorter than this part of a diagram are not drawn: a server's thousand steps are one bar."""


@dataclass(frozen=True)
class Bar:
    """A party is in a phase, computing or with a message on its link; nanoseconds of virtual time."""

    party: int
    phase: str
    link: bool
    start: int
    end: int


@dataclass(frozen=True)
class Diagram:
    """A round or aggregation of a protocol: `cast` are the parties, by what they are called.

    It starts with the round, or for an aggregation with the first of its users' cycles.
    """

    protocol: str
    round: int
    start: int
    end: int
    cast: dict[str, int]
    bars: tuple[Bar, ...]


def diagrams(run: Run) -> list[Diagram]:
    """A typical completed round of each protocol, of those that all have completed where there are any.

    Typical is the median duration, all protocols together; of aggregations, which overlap, the middle one.
    """
    done = {name: [r for r in rounds if r.reason is None] for name, rounds in run.rounds.items()}
    done = {name: rounds for name, rounds in done.items() if rounds}
    common = set.intersection(*({r.index for r in rounds} for rounds in done.values())) if done else set()
    out = []
    for name, rounds in done.items():
        shared = list(done.values()) if common else [rounds]
        index = _typical(shared, common or {r.index for r in rounds}, run.buffered)
        (chosen,) = (r for r in rounds if r.index == index)
        out.append(_diagram(run.traces[name], name, chosen, run.buffered))
    return out


def _typical(done: list[list[Round]], among: set[int], buffered: bool) -> int:
    """The one of `among` whose duration is the median."""
    lasting = dict.fromkeys(sorted(among), 0)
    for r in (r for rounds in done for r in rounds if r.index in among):
        lasting[r.index] += r.end - r.start
    order = list(lasting) if buffered else sorted(lasting, key=lambda index: lasting[index])
    return order[len(order) // 2]


def _diagram(trace: Trace, name: str, chosen: Round, buffered: bool) -> Diagram:
    group = trace if buffered else [trace[k] for k in read_off.by_round(trace)[chosen.index]]
    cycles = _cycles(group, {(user, about) for user, about, _ in chosen.members})
    order = sorted(cycles, key=lambda user: (cycles[user][1] - cycles[user][0], user))
    cast = {"server": SERVER, "fastest user": order[0]}
    if len(order) > 2:
        cast["median user"] = order[len(order) // 2]
    if len(order) > 1:
        cast["slowest user"] = order[-1]
    start = min([chosen.start, *(cycles[user][0] for user in cast.values() if user != SERVER)])
    least = (chosen.end - start) // FINE
    kept = _merged(_bars(group, set(cast.values()), start, chosen.end), least)
    return Diagram(name, chosen.index, start, chosen.end, cast, tuple(kept))


def _cycles(rows: Iterable[object], members: set[tuple[int, str]]) -> dict[int, tuple[int, int]]:
    """Of each member (user, about): from when it was first written to, to when its upload had arrived."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for row in rows:
        if isinstance(row, Sent) and row.arrived is not None:
            user = row.sender if row.to == SERVER else row.to
            if (user, row.about) in members:
                first.setdefault(user, row.sent)
                if row.phase == "upload" and row.to == SERVER:
                    last[user] = row.arrived
    return {user: (first[user], last[user]) for user in last}


def _bars(rows: Iterable[object], parties: set[int], start: int, end: int) -> Iterator[Bar]:
    """What these parties do within a stretch of time; a message is on the link of its user."""
    for row in rows:
        if isinstance(row, Step) and row.party in parties:
            at = row.start
            for phase, ns in row.segments:
                if at < end and at + ns > start:
                    yield Bar(row.party, phase, False, max(at, start), min(at + ns, end))
                at += ns
        elif isinstance(row, Sent) and row.arrived is not None:
            user = row.sender if row.to == SERVER else row.to
            if user in parties and row.sent < end and row.arrived > start:
                yield Bar(user, row.phase, True, max(row.sent, start), min(row.arrived, end))


def _merged(bars: Iterable[Bar], least: int) -> list[Bar]:
    """Bars of one party, phase and kind as one where less than `least` lies between them."""
    out: list[Bar] = []
    for bar in sorted(bars, key=lambda b: (b.party, b.phase, b.link, b.start)):
        last = out[-1] if out else None
        same = last and (last.party, last.phase, last.link) == (bar.party, bar.phase, bar.link)
        if last and same and bar.start - last.end <= least:
            out[-1] = Bar(bar.party, bar.phase, bar.link, last.start, max(last.end, bar.end))
        else:
            out.append(bar)
    return out


@style()
def timing(run: Run) -> list[Figure]:
    """A panel for each protocol with a completed round; so many figures that each fits a page.

    Time starts with the round, and is to one scale in all of them.
    """
    drawn = diagrams(run)
    longest = max((d.end - d.start for d in drawn), default=0)
    return [_figure(drawn[k : k + PANELS], longest, run.unit) for k in range(0, len(drawn), PANELS)]


def _figure(drawn: list[Diagram], longest: int, unit: str) -> Figure:
    height = 0.55 + sum(0.25 + ROW * len(d.cast) for d in drawn)
    figure, cells = panels(WIDE, height, len(drawn), sharex=True)
    for (axes,), diagram in zip(cells, drawn, strict=True):
        _draw(axes, diagram, unit)
    cells[-1][0].set_xlabel("virtual time (s)")
    cells[-1][0].set_xlim(0, 1.01 * longest / NS)
    kinds = [Patch(color="#555555", label="computing"), Patch(color=pale("#555555"), label="on its link")]
    end = Line2D([], [], color=INK, linewidth=LINE, label=f"end of the {unit}")
    legend(figure, [*phase_patches(), *kinds, end])
    return figure


def _draw(axes: Axes, diagram: Diagram, unit: str) -> None:
    for place, party in enumerate(diagram.cast.values()):
        for link in (True, False):
            for phase in PHASES:
                mine = [b for b in diagram.bars if (b.party, b.phase, b.link) == (party, phase, link)]
                spans = [((b.start - diagram.start) / NS, (b.end - b.start) / NS) for b in mine]
                colour = palette.PHASE[phase]
                top = place if phase == "training" and party != SERVER else place - 0.42
                where = (top, 0.84 if party == SERVER else 0.42)
                axes.broken_barh(spans, where, facecolor=pale(colour) if link else colour, linewidth=0)
    axes.axvline((diagram.end - diagram.start) / NS, color=INK, linewidth=LINE)
    names = [what if party == SERVER else f"{what} ({party})" for what, party in diagram.cast.items()]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params("y", length=0)
    axes.set_title(f"{diagram.protocol}, {unit} {diagram.round}", loc="left", pad=2)
    grid(axes, "x")
