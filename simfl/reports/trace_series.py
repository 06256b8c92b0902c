"""Rows of a trace by round, in words, and as quantities over time: what page, figures and Perfetto share."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from simfl.errors import counted
from simfl.runs.results.units import listed
from simfl.trace import rows as trace_rows
from simfl.trace.rows import SERVER, Aggregated, End, Presence, Row, Sent, Step, Trace

TO_SERVER, FROM_SERVER = "to server", "from server"  # lanes of a user's link, beside `trace.LANES`
MAX_USERS = 12  # named where the server went on without them
Changes = list[tuple[int, int]]  # (nanoseconds, new value), in order of time


def by_round(trace: Trace) -> dict[int, list[int]]:
    """Round -> the numbers of its rows.

    A synchronous row says its round; a change of presence belongs to the round that is going on. Rows of an
    asynchronous run belong to the aggregation that was next when they were written; those after the last
    one, to a round that did not finish.
    """
    groups: dict[int, list[int]] = {}
    now, buffered = 0, trace.buffered
    for number, row in enumerate(trace):
        if not buffered and not isinstance(row, Presence):
            now = row.round
        groups.setdefault(now, []).append(number)
        if buffered and isinstance(row, End):
            now = row.round + 1
    return dict(sorted(groups.items()))


def first_that_fit(rounds: Iterable[int], groups: Mapping[int, list[int]], budget: float) -> list[int]:
    """The first of some rounds whose rows are within a budget, all together; at least one."""
    taken: list[int] = []
    for index in rounds:
        budget -= len(groups[index])
        if taken and budget < 0:
            break
        taken.append(index)
    return taken


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time of a party in a phase: part of a step, or a message on the link of a user."""

    party: int
    lane: str
    phase: str
    start: int
    end: int


def spans(row: Row) -> Iterator[Span]:
    """The spans of a row; of a message that broke off, when is not known, one of no length."""
    if isinstance(row, Step):
        at = row.start
        for phase, ns in row.segments:
            yield Span(row.party, row.lane, phase, at, at + ns)
            at += ns
    elif isinstance(row, Sent):
        user, lane = (row.sender, TO_SERVER) if row.to == SERVER else (row.to, FROM_SERVER)
        yield Span(user, lane, row.phase, *extent(row))


def extent(row: Row) -> tuple[int, int]:
    """The start and the end of a row."""
    if isinstance(row, Step):
        return row.start, row.end
    if isinstance(row, Sent):
        return row.sent, row.sent if row.arrived is None else row.arrived
    return row.at, row.at


@dataclass(frozen=True)
class Moment:
    """A row without length, in words: `sign` names its mark on the page's timeline, "" for none."""

    at: int
    party: int
    sign: str
    text: str
    details: dict[str, Any] = field(default_factory=dict)


def moment(row: Row) -> Moment | None:
    """A loss, a refusal or a result in words; None for another row."""
    match row:
        case trace_rows.Lost():
            return Moment(row.at, row.user, "lost", f"lost: {row.why}")
        case trace_rows.GaveUp():
            text = f"gave up {counted(len(row.users), 'user')}: {listed(row.users, MAX_USERS)}"
            return Moment(row.at, SERVER, "gave up", text, {"users": row.users})
        case trace_rows.Surplus():
            text = f"told {counted(len(row.users), 'user')} to stop: {listed(row.users, MAX_USERS)}"
            return Moment(row.at, SERVER, "", text, {"users": row.users})
        case trace_rows.Refused() | trace_rows.Ignored():
            kind, sender = type(row).__name__.lower(), "server" if row.sender == SERVER else row.sender
            sign = kind if kind == "refused" else ""  # what comes late is no mark: there are thousands
            return Moment(row.at, row.party, sign, f"{kind} {row.message}: {row.why}", {"sender": sender})
        case trace_rows.Judged():
            private = f"{'' if row.private else 'not '}private"
            text = f"verdict: {'' if row.reliable else 'not '}reliable, {private}"
            return Moment(row.at, SERVER, "" if row.reliable and row.private else "refused", text)
        case trace_rows.Aborted():
            return Moment(row.at, SERVER, "aborted", f"round {row.round} aborted: {row.reason}")
        case Aggregated():
            text = f"aggregate {row.round} of {len(row.members)} updates is in the clear"
            return Moment(row.at, SERVER, "aggregate", text)
        case End():
            return Moment(row.at, SERVER, "", f"round {row.round} ends")
    return None


def receipts(trace: Trace) -> dict[int, int]:
    """The number of a message's row -> the step that its receiver took on it."""
    received = ((n, row) for n, row in enumerate(trace) if isinstance(row, Step) and row.call == "receive")
    return {row.cause: number for number, row in received if row.cause >= 0}


def link_load(trace: Trace, numbers: Iterable[int], up: bool) -> Changes:
    """Messages under way between users and the server; none that broke off, as when is not known."""
    changes: Counter[int] = Counter()
    for number in numbers:
        row = trace[number]
        if isinstance(row, Sent) and row.arrived is not None and (row.to == SERVER) == up:
            changes[row.sent] += 1
            changes[row.arrived] -= 1
    return _running(changes, 0)


def online(trace: Trace, users: int) -> Changes:
    """Users online; all are before the first of them goes."""
    changes = Counter({0: 0})
    for row in trace:
        if isinstance(row, Presence):
            changes[row.at] += 1 if row.online else -1
    return _running(changes, users)


def buffer_fill(trace: Trace) -> Changes:
    """Updates that an asynchronous server holds: received, and neither aggregated nor thrown away."""
    left = (row for row in trace if isinstance(row, trace_rows.Ignored | trace_rows.Refused))
    unread = {row.cause for row in left if (row.party, row.message) == (SERVER, "upload")}
    changes = Counter({0: 0})
    for number, row in enumerate(trace):
        match row:
            case Step(call="receive", what="upload", end=at) if row.party == SERVER and number not in unread:
                changes[at] += 1
            case Aggregated(at=at):
                changes[at] -= len(row.members)
            case trace_rows.Ignored(at=at) if row.discarded:
                changes[at] -= 1
    return _running(changes, 0)


def version(trace: Trace) -> Changes:
    """Aggregates that the global model has seen."""
    done = (row.at for row in trace if isinstance(row, Aggregated))
    return [(0, 0), *((at, number) for number, at in enumerate(done, 1))]


def parties(rows: Iterable[Row]) -> list[int]:
    """The server and the users whom rows name, in order."""
    found = {SERVER}
    for row in rows:
        found.update(span.party for span in spans(row))
        found.update(row.users if isinstance(row, trace_rows.Begin) else (getattr(row, "user", SERVER),))
    return sorted(found)


def _running(changes: Counter[int], value: int) -> Changes:
    out: Changes = []
    for at in sorted(changes):
        value += changes[at]
        if not out or out[-1][1] != value:
            out.append((at, value))
    return out
