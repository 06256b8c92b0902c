"""The timeline of a page: a few rounds of each protocol, packed small.

A span is a piece of a step, or a message on its way; times are whole microseconds from the start of its
view, in columns that hold differences. What a page cannot hold is left out and said: of a synchronous run
whole rounds, of an asynchronous one all but a few stretches of aggregations, of a huge round users.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from simfl.reports import trace_series
from simfl.reports.advice import KINDS
from simfl.reports.choice import View, views
from simfl.reports.folder import Run
from simfl.reports.trace_series import FROM_SERVER, TO_SERVER, Span
from simfl.results import metrics
from simfl.results.metrics import Piece
from simfl.results.trace import LANES as DEVICE_LANES
from simfl.results.trace import PHASES, SERVER, End, Row, Sent, Step, Trace

LANES = (*DEVICE_LANES, FROM_SERVER, TO_SERVER)
"""Where a span is drawn within its party's row, by number."""


@dataclass
class Packed:
    """The views of a protocol as JSON, and the place of the one to look at first.

    `types` numbers the types of spans, which are (lane, phase, text, bytes, note).
    """

    first: int
    left_out: str
    types: dict[tuple[Any, ...], int] = field(default_factory=dict)
    views: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Packable:
    """A span; `after` is the row that held it up, or its own `row` if an earlier part of that did."""

    span: Span
    type: int
    waited: int
    row: int
    after: int


def pack(run: Run, name: str, budget: int, asked: tuple[int, int] | None = None) -> Packed:
    """A protocol's timeline, of about `budget` spans, or of the rounds that are asked for."""
    chosen, first, left_out = views(run, name, budget, asked)
    trace, packed = run.traces[name], Packed(first, left_out)
    ends = [row for row in trace if isinstance(row, End)]
    # Of an asynchronous run one path for all views, from the last aggregation back to the beginning.
    whole = metrics.pieces(trace, ends[-1]._replace(start=0)) if run.buffered and ends else None
    for view in chosen:
        path = whole or [piece for end in view.ends for piece in metrics.pieces(trace, end)]
        packed.views.append(_pack_view(packed, trace, view, path))
    return packed


def _pack_view(packed: Packed, trace: Trace, view: View, path: list[Piece]) -> dict[str, Any]:
    shown = None if view.users is None else {SERVER, *view.users}
    every = (packable for number in view.numbers for packable in _spans(packed, trace[number], number))
    spans = [packable for packable in every if shown is None or packable.span.party in shown]
    spans.sort(key=lambda p: (p.span.start, p.row))  # stable: parts of a step stay in order
    places = {(p.row, p.span.phase): k for k, p in enumerate(spans)}
    moments = filter(None, (trace_series.moment(trace[number]) for number in view.numbers))
    return {
        "label": view.label,
        "start": view.start,
        "length": _us(view.end - view.start),
        "users": sorted({p.span.party for p in spans} - {SERVER}),
        **_columns(spans, view.start),
        # a piece of the path: party, phase, kind, from, to, the span that it is part of or -1
        "path": [
            [p.party, PHASES.index(p.phase), KINDS.index(p.kind), _us(max(p.start, view.start) - view.start),
             _us(min(p.end, view.end) - view.start), places.get((p.row, p.phase), -1)]
            for p in reversed(path) if p.start < view.end and p.end > view.start
        ],
        "marks": [
            [_us(m.at - view.start), m.party, m.sign, m.text]
            for m in moments if m.sign and (shown is None or m.party in shown)
        ],
    }  # fmt: skip


def _spans(packed: Packed, row: Row, number: int) -> Iterator[Packable]:
    """The spans of a row with what the page says of them."""
    if isinstance(row, Sent):
        text, size, waited, after = row.kind, row.size, 0, row.cause
        note = "" if row.arrived is not None else f"broke off after {row.bytes} bytes"
    elif isinstance(row, Step):
        text, size, waited = f"{row.call} {row.what}".strip(), None, row.start - row.ready
        note = "broken off" if row.left else ""
        after = row.previous if waited and row.previous >= 0 else row.cause
    for span in trace_series.spans(row):
        kind = LANES.index(span.lane), PHASES.index(span.phase), text, size, note
        yield Packable(span, packed.types.setdefault(kind, len(packed.types)), waited, number, after)
        waited, after = 0, number


def _columns(spans: list[Packable], base: int) -> dict[str, list[int]]:
    """s: starts, as differences; d: durations; p: parties; t: types; w: waited; a: distance back to the
    span that held this one up, 0 where none of the view did."""
    last = {packable.row: k for k, packable in enumerate(spans)}
    columns: dict[str, list[int]] = {key: [] for key in "sdptwa"}
    seen: dict[int, int] = {}
    before = 0
    for k, packable in enumerate(spans):
        span, row = packable.span, packable.row
        start = _us(span.start - base)
        held = seen[row] if packable.after == row else last.get(packable.after, k)
        duration, waited = _us(span.end - base) - start, _us(packable.waited)
        values = (start - before, duration, span.party, packable.type, waited, k - held)
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
        seen[row], before = k, start
    return columns


def _us(ns: int) -> int:
    return round(ns / 1000)
