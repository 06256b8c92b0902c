"""Which rows of a trace belong to which round, and what can be read off them over time."""

from __future__ import annotations

from collections.abc import Iterable

from simfl.results.trace import (
    SERVER,
    Aggregated,
    Begin,
    End,
    Ignored,
    Presence,
    Refused,
    Row,
    Sent,
    Step,
    Trace,
)

UPLOAD = (SERVER, "upload")

Changes = list[tuple[int, int]]
"""(nanoseconds, new value), in order of time."""


def by_round(trace: Trace) -> dict[int, list[int]]:
    """Round -> the numbers of its rows.

    A synchronous row says its round; who comes and goes belongs to the round that is going on. Rows of an
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


def receipts(trace: Trace) -> dict[int, int]:
    """The number of a message's row -> the step that its receiver took on it."""
    return {
        row.cause: number
        for number, row in enumerate(trace)
        if isinstance(row, Step) and row.call == "receive" and row.cause >= 0
    }


def link_load(trace: Trace, numbers: Iterable[int], up: bool) -> Changes:
    """How many messages are under way between users and the server, from sending to arrival.

    Those that broke off count for no time: when they did is not known.
    """
    changes: dict[int, int] = {}
    for number in numbers:
        row = trace[number]
        if isinstance(row, Sent) and row.arrived is not None and (row.to == SERVER) == up:
            changes[row.sent] = changes.get(row.sent, 0) + 1
            changes[row.arrived] = changes.get(row.arrived, 0) - 1
    return _running(changes, 0)


def online(trace: Trace, users: int) -> Changes:
    """How many of all users are online; they all are before the first of them goes."""
    changes: dict[int, int] = {0: 0}
    for row in trace:
        if isinstance(row, Presence):
            changes[row.at] = changes.get(row.at, 0) + (1 if row.online else -1)
    return _running(changes, users)


def buffer_fill(trace: Trace) -> Changes:
    """How many updates an asynchronous server holds: received, and neither aggregated nor thrown away."""
    unread = {
        row.cause
        for row in trace
        if isinstance(row, Ignored | Refused) and (row.party, row.message) == UPLOAD
    }
    changes: dict[int, int] = {0: 0}
    for number, row in enumerate(trace):
        match row:
            case Step(call="receive", what="upload", end=at) if row.party == SERVER and number not in unread:
                change = 1
            case Aggregated(at=at):
                change = -len(row.members)
            case Ignored(at=at) if row.discarded:
                change = -1
            case _:
                continue
        changes[at] = changes.get(at, 0) + change
    return _running(changes, 0)


def version(trace: Trace) -> Changes:
    """How many aggregates the global model has seen."""
    done = (row.at for row in trace if isinstance(row, Aggregated))
    return [(0, 0), *((at, number) for number, at in enumerate(done, 1))]


def parties(rows: Iterable[Row]) -> list[int]:
    """The server and the users whom rows name, in order."""
    found = {SERVER}
    for row in rows:
        match row:
            case Begin():
                found.update(row.users)
            case Step():
                found.add(row.party)
            case Sent():
                found.update((row.sender, row.to))
            case _:
                found.update({getattr(row, "user", SERVER)})
    return sorted(found)


def _running(changes: dict[int, int], value: int) -> Changes:
    out: Changes = []
    for at in sorted(changes):
        value += changes[at]
        if not out or out[-1][1] != value:
            out.append((at, value))
    return out
