"""The timeline of a page: a few rounds of each protocol, packed small.

Law: a span is a piece of a step, or a message on its way; times are whole microseconds from the start of
its view, in columns that hold differences. What a page cannot hold is left out and said: of a synchronous
run whole rounds, of an asynchronous one all but a few stretches of aggregations, of a huge round users.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simfl.reports.advice import KINDS
from simfl.reports.choice import View, typical, views
from simfl.reports.folder import Run
from simfl.results import metrics
from simfl.results.metrics import Piece
from simfl.results.trace import (  # fmt: skip
    PHASES,
    SERVER,
    Aborted,
    Aggregated,
    End,
    GaveUp,
    Ignored,
    Judged,
    Lost,
    Refused,
    Row,
    Sent,
    Step,
    Trace,
)

LANES = ("protocol", "training", "from server", "to server")
"""Where a span is drawn within its party's row, by number."""


@dataclass
class Packed:
    """The views of a protocol as JSON, the one to look at first, and what is left out.

    A type of span is [lane, phase, text, bytes, note].
    """

    types: list[list[Any]] = field(default_factory=list)
    views: list[dict[str, Any]] = field(default_factory=list)
    left_out: str = ""
    first: int = 0


@dataclass(slots=True)
class Span:
    """Times in nanoseconds; `after` is the row that held it up, or the number of its own row's last piece."""

    start: int
    end: int
    party: int
    type: int
    waited: int
    row: int
    after: int


def pack(run: Run, name: str, budget: int, asked: tuple[int, int] | None = None) -> Packed:
    """A protocol's timeline, of about `budget` spans, or of the rounds that are asked for."""
    packed = Packed()
    chosen, packed.left_out = views(run, name, budget, asked)
    packed.first = typical(run, name, chosen)
    kinds: dict[tuple[Any, ...], int] = {}
    whole = _whole_path(run.traces[name]) if run.buffered else None
    for view in chosen:
        packed.views.append(_pack_view(run.traces[name], view, kinds, whole))
    packed.types = [list(kind) for kind in kinds]
    return packed


def _whole_path(trace: Trace) -> list[Piece]:
    """The path of an asynchronous run, back from its last aggregation to its beginning."""
    ends = [row for row in trace if isinstance(row, End)]
    return metrics.pieces(trace, End(ends[-1].round, 0, ends[-1].at, ends[-1].cause)) if ends else []


def _pack_view(
    trace: Trace, view: View, kinds: dict[tuple[Any, ...], int], whole: list[Piece] | None
) -> dict[str, Any]:
    # a piece of the path: party, phase, kind, from, to, the span that it is part of or -1
    shown = None if view.users is None else {SERVER, *view.users}
    spans: list[Span] = []
    for number in view.numbers:
        row = trace[number]
        if isinstance(row, Step) and (shown is None or row.party in shown):
            spans += _step(row, number, kinds)
        elif isinstance(row, Sent) and (shown is None or {row.sender, row.to} <= shown):
            spans.append(_message(row, number, kinds))
    spans.sort(key=lambda s: (s.start, s.row))  # stable: pieces of a step stay in order
    kind_of = list(kinds)
    path = whole if whole is not None else [p for end in view.ends for p in metrics.pieces(trace, end)]
    inside = [p for p in path if p.start < view.end and p.end > view.start]
    place = {(span.row, kind_of[span.type][1]): k for k, span in enumerate(spans)}
    return {
        "label": view.label,
        "start": view.start,
        "length": _us(view.end - view.start),
        "users": sorted({s.party for s in spans} - {SERVER}),
        **_columns(spans, view.start),
        "path": [
            [p.party, PHASES.index(p.phase), KINDS.index(p.kind), _us(max(p.start, view.start) - view.start),
             _us(min(p.end, view.end) - view.start), place.get((p.row, PHASES.index(p.phase)), -1)]
            for p in reversed(inside)
        ],
        "marks": [m for n in view.numbers for m in _mark(trace[n], view.start, shown)],
    }  # fmt: skip


def _step(row: Step, number: int, kinds: dict[tuple[Any, ...], int]) -> list[Span]:
    """A span for each phase that a step was in."""
    bound = row.previous if row.start > row.ready and row.previous >= 0 else row.cause
    at, waited, out = row.start, row.start - row.ready, []
    for phase, ns in row.segments:
        note = "broken off" if row.left else ""
        kind = _kind(kinds, LANES.index(row.lane), phase, f"{row.call} {row.what}".strip(), None, note)
        out.append(Span(at, at + ns, row.party, kind, waited, number, bound))
        at, waited, bound = at + ns, 0, number
    return out


def _message(row: Sent, number: int, kinds: dict[tuple[Any, ...], int]) -> Span:
    up = row.to == SERVER
    note = "" if row.arrived is not None else f"broke off after {row.bytes} bytes"
    kind = _kind(kinds, 3 if up else 2, row.phase, row.kind, row.size, note)
    end = row.sent if row.arrived is None else row.arrived
    return Span(row.sent, end, row.sender if up else row.to, kind, 0, number, row.cause)


def _kind(
    kinds: dict[tuple[Any, ...], int], lane: int, phase: str, text: str, size: int | None, note: str
) -> int:
    return kinds.setdefault((lane, PHASES.index(phase), text, size, note), len(kinds))


def _columns(spans: list[Span], base: int) -> dict[str, list[int]]:
    """s: starts, as differences; d: durations; p: parties; t: types; w: waited; a: how many spans ago that
    one was which held this one up, 0 where none of the view did."""
    last = {span.row: k for k, span in enumerate(spans)}
    columns: dict[str, list[int]] = {key: [] for key in "sdptwa"}
    seen: dict[int, int] = {}
    before = 0
    for k, span in enumerate(spans):
        start = _us(span.start - base)
        held = seen[span.row] if span.after == span.row else last.get(span.after, k)
        seen[span.row] = k
        values = (
            start - before,
            _us(span.end - base) - start,
            span.party,
            span.type,
            _us(span.waited),
            k - held,
        )
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
        before = start
    return columns


def _mark(row: Row, base: int, shown: set[int] | None) -> list[list[Any]]:
    """[microseconds, party, sign, text] of what has no length."""
    match row:
        case Lost():
            party, sign, text = row.user, "lost", f"lost: {row.why}"
        case GaveUp():
            users = ", ".join(map(str, row.users))
            party, sign, text = SERVER, "gave up", f"gave up user{'s' * (len(row.users) > 1)} {users}"
        case Refused():
            party, sign, text = row.party, "refused", f"refused {row.message}: {row.why}"
        case Ignored():
            party, sign, text = row.party, "ignored", f"ignored {row.message}: {row.why}"
        case Aborted():
            party, sign, text = SERVER, "aborted", f"round {row.round} aborted: {row.reason}"
        case Aggregated():
            text = f"aggregate {row.round} of {len(row.members)} updates is in the clear"
            party, sign = SERVER, "aggregate"
        case Judged() if not (row.reliable and row.private):
            text = f"{'' if row.reliable else 'not '}reliable, {'' if row.private else 'not '}private"
            party, sign = SERVER, "refused"
        case _:
            return []
    return [[_us(row.at - base), party, sign, text]] if shown is None or party in shown else []


def _us(ns: int) -> int:
    return round(ns / 1000)
