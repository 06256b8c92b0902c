"""The timing diagram of one round per protocol, as LightSecAgg Fig. 5: who does what when.

A row is the server or a user: full colour where it computes, pale where a message is on the user's link,
nothing where it waits. What belongs to training is in the lower half of a row, so that an offline phase that
runs beside training is seen beside it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from simfl.metrics import Round
from simfl.reports import palette
from simfl.reports import rows as read_off
from simfl.reports.figures_style import (
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
from simfl.reports.folder import NS, Run
from simfl.trace import PHASES, SERVER, Sent, Step, Trace

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
    """A typical completed round of each protocol: one that all have completed, where there is one."""
    done = {name: [r for r in rounds if r.members] for name, rounds in run.rounds.items()}
    done = {name: rounds for name, rounds in done.items() if rounds}
    common = set.intersection(*({r.index for r in rounds} for rounds in done.values())) if done else set()
    lasting = {
        k: sum(r.end - r.start for rounds in done.values() for r in rounds if r.index == k) for k in common
    }
    out = []
    for name, rounds in done.items():
        durations = lasting or {r.index: r.end - r.start for r in rounds}
        (chosen,) = (r for r in rounds if r.index == _median(durations))
        out.append(_diagram(run.traces[name], name, chosen))
    return out


def _median(durations: dict[int, int]) -> int:
    """The round whose duration is the median."""
    middle = statistics.median_high(durations.values())
    return min(k for k, duration in durations.items() if duration == middle)


def _diagram(trace: Trace, name: str, chosen: Round) -> Diagram:
    cycles = {user: _cycle(trace, chosen, user, about) for user, about, _ in chosen.members}
    order = sorted(cycles, key=lambda user: (cycles[user][1] - cycles[user][0], user))
    users = {"fastest user": order[0], "median user": order[len(order) // 2], "slowest user": order[-1]}
    cast = {"server": SERVER} | {
        what: user for what, user in users.items() if len(order) >= 3 or what[0] == "f"
    }
    start = min([chosen.start, *(cycles[user][0] for user in cast.values() if user != SERVER)])
    group = trace if _buffered(chosen) else [trace[k] for k in read_off.by_round(trace)[chosen.index]]
    least = (chosen.end - start) // FINE
    kept = _merged(_bars(group, set(cast.values()), start, chosen.end), least)
    return Diagram(name, chosen.index, start, chosen.end, cast, tuple(kept))


def _buffered(chosen: Round) -> bool:
    return any(about for _, about, _ in chosen.members)


def _cycle(trace: Trace, chosen: Round, user: int, about: str) -> tuple[int, int]:
    """From when a member was first written to, to when its upload had arrived."""
    mine = [
        row
        for row in trace
        if isinstance(row, Sent)
        and row.about == about
        and user in (row.sender, row.to)
        and (about or row.round == chosen.index)
    ]
    arrived = [row.arrived for row in mine if row.phase == "upload" and row.to == SERVER and row.arrived]
    return min(row.sent for row in mine), max(arrived)


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
def timing(run: Run) -> Figure | None:
    """A panel for each protocol with a completed round; time starts with the round."""
    drawn = diagrams(run)
    if not drawn:
        return None
    height = 0.55 + sum(0.25 + ROW * len(d.cast) for d in drawn)
    figure, cells = panels(WIDE, height, len(drawn), sharex=True)
    for (axes,), diagram in zip(cells, drawn, strict=True):
        _draw(axes, diagram, run.unit)
    cells[-1][0].set_xlabel("virtual time (s)")
    cells[-1][0].set_xlim(0, 1.01 * max(d.end - d.start for d in drawn) / NS)
    kinds = [Patch(color="#555555", label="computing"), Patch(color=pale("#555555"), label="on its link")]
    legend(figure, [*phase_patches(), *kinds], 6)
    return figure


def _draw(axes: Axes, diagram: Diagram, unit: str) -> None:
    for place, party in enumerate(diagram.cast.values()):
        for link in (True, False):
            for phase in PHASES:
                mine = [b for b in diagram.bars if (b.party, b.phase, b.link) == (party, phase, link)]
                spans = [((b.start - diagram.start) / NS, (b.end - b.start) / NS) for b in mine]
                colour = palette.PHASE[phase]
                where = (place, 0.42) if phase == "training" else (place - 0.42, 0.42)
                axes.broken_barh(spans, where, facecolor=pale(colour) if link else colour, linewidth=0)
    axes.axvline((diagram.end - diagram.start) / NS, color=INK, linewidth=0.8)
    names = [what if party == SERVER else f"{what} ({party})" for what, party in diagram.cast.items()]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params("y", length=0)
    axes.set_title(f"{diagram.protocol}, {unit} {diagram.round}", loc="left", pad=2)
    grid(axes, "x")
