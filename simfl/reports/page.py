"""`report.html`: one page that holds everything, asks no network for anything, and opens from a file.

Law: text from a scenario reaches the page only through the template's escaping, or as JSON in which no `<`
is left as it is.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from simfl.reports import palette, tables, timeline, units, world
from simfl.reports.advice import KINDS, Advice, advise
from simfl.reports.chart import axis
from simfl.reports.folder import Run
from simfl.results import columns
from simfl.results.trace import PHASES

SPANS = 80_000
"""About so many spans the timelines of a page hold, all protocols together: 2 MB."""

LEAST = 1_000
"""And at least so many each."""

CLOCKS = {
    "measured": "measured: CPU time of the real work on the machine that ran it x each device's slowdown",
    "modelled": "modelled: counted work times the seconds per operation of profile {profile}",
    "recorded": "recorded: the durations of an earlier run",
}

PLACES: tuple[columns.Place, ...] = ("headline", "phases", "losses")
"""Tables of a page."""

SHARES = 8
"""Shares of a critical path that are listed."""


def page(run: Run, asked: tuple[int, int] | None = None) -> str:
    """The page of a run; its timelines show the rounds that are asked for (from, to), or well chosen ones."""
    protocols = run.summary.protocols
    names = list(protocols)
    advices = {name: advise(run.traces[name], run.rounds[name]) for name in names}
    budget = max(LEAST, SPANS // max(1, len(names)))
    timelines = [{"name": name, **vars(timeline.pack(run, name, budget, asked))} for name in names]
    shown = [
        {"name": t["name"], "left_out": t["left_out"], "views": len(t["views"]), "first": t["first"]}
        for t in timelines
    ]
    rows = tables.breakdown(run)
    return (
        _environment()
        .get_template("report.html")
        .render(
            run=run,
            summary=run.summary,
            scenario=run.scenario,
            unit=run.unit,
            a_unit="an aggregation" if run.buffered else "a round",
            phases=PHASES,
            kinds=KINDS,
            colours=palette.PHASE,
            clock=CLOCKS[run.summary.clock].format(profile=run.scenario.profile),
            columns={place: columns.at(place, protocols.values()) for place in PLACES},
            headings=tables.headings,
            totals={name: tables.mean(r.total_s for r in p.completed) for name, p in protocols.items()},
            nothing=tables.NONE,
            advices=advices,
            widest=max((a.total_ns / a.rounds for a in advices.values() if a.rounds), default=0),
            most_shares=SHARES,
            breakdown=rows,
            stacks=stacks(rows),
            reasons=tables.reasons(run),
            accuracy=_accuracy(run),
            training=_alike({name: p.training for name, p in protocols.items()}),
            facts=world.facts(run.scenario),
            timelines=timelines,
            meta={"phases": PHASES, "kinds": KINDS, "protocols": shown},
            paths={name: parts(advice) for name, advice in advices.items()},
        )
    )


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("simfl.reports"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {"capital": lambda text: text[:1].upper() + text[1:]}
    made.filters |= {"embed": embed, "seconds": units.seconds, "percent": units.percent}
    return made


def _alike(values: dict[str, str | None]) -> dict[str, list[str]]:
    """What is said -> of which protocols."""
    out: dict[str, list[str]] = {}
    for name, value in values.items():
        if value:
            out.setdefault(value, []).append(name)
    return out


def embed(value: Any) -> Markup:
    """JSON that can stand inside a script element, whatever text is in it."""
    text = json.dumps(value, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def parts(advice: Advice) -> list[tuple[str, str, str, float, float]]:
    """A critical path as a bar: (phase, kind, text, nanoseconds before, nanoseconds) a round, in order of
    phases and kinds."""
    amounts: dict[tuple[str, str], int] = {}
    for share in advice.shares:
        key = share.phase, share.kind
        amounts[key] = amounts.get(key, 0) + share.ns
    out, before = [], 0.0
    for phase in PHASES:
        for kind in KINDS:
            ns = amounts.get((phase, kind), 0) / (advice.rounds or 1)
            if ns:
                text = f"{phase}, {kind}: {units.seconds(ns)}"
                out.append((phase, kind, text, before, ns))
                before += ns
    return out


def stacks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Phases' mean spans on top of each other, and where the round ends, in percent of the longest."""
    drawn = [
        (row, row["means"]["total_s", ""], {p: row["means"]["span_s", p] for p in PHASES}) for row in rows
    ]
    most = max((max(total.mean, sum(m.mean for m in spans.values())) for _, total, spans in drawn), default=0)
    out = []
    for row, total, spans in drawn:
        at, parts = 0.0, []
        for phase, span in spans.items():
            text = f"{phase}: {span.mean:.3f} s ± {span.sd:.3f}"
            wide = 100 * span.mean / (most or 1)
            parts.append({"phase": phase, "text": text, "at": round(at, 3), "wide": round(wide, 3)})
            at += wide
        end = round(100 * total.mean / (most or 1), 3)
        out.append({"name": row["name"], "rate": row["rate"], "total": total, "parts": parts, "end": end})
    return out


def _accuracy(run: Run) -> dict[str, Any] | None:
    """Lines over virtual time: points in percent of the chart, from its left and from its top."""
    series = tables.accuracy(run)
    points = [point for _, listed in series for point in listed]
    if not points:
        return None
    across = axis(0.0, max(at for at, _ in points))
    up = axis(min(value for _, value in points), max(value for _, value in points))
    lines = []
    for place, (name, listed) in enumerate(series):
        colour, dashes = palette.line(place)
        drawn = [(round(across.at(at), 3), round(100 - up.at(value), 3)) for at, value in listed]
        last = f"{listed[-1][1]:.4f}" if listed else tables.NONE
        line = {"name": name, "colour": colour, "dashes": dashes, "points": drawn}
        lines.append({**line, "values": listed, "last": last})
    return {"lines": lines, "across": across, "up": up}
