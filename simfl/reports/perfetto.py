"""A trace in the Chrome trace event format (JSON), for ui.perfetto.dev and chrome://tracing.

Source: "Trace Event Format", Google, 2016. Times are microseconds with three decimals: nanoseconds. Every
party of every protocol is a process; its threads are its lanes, a thread for each phase, so that what is on
a thread never overlaps. Each direction of the server's link is a process whose messages are asynchronous
events, since many are under way at once. Arrows lead from the step that sent a message to the step on it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simfl.errors import BadInput
from simfl.reports import trace_series as read_off
from simfl.reports.folder import Run
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

LIMIT = 200_000
"""The most rows that are written, of all protocols together; a viewer still opens that many."""

SERVER_PID, TO_USERS, FROM_USERS, FIRST_USER = 1, 2, 3, 10
"""Places of a protocol's processes, within a range of its own for each protocol."""

LANES = {("protocol", phase): 1 + k for k, phase in enumerate(PHASES)} | {
    ("training", phase): 11 + k for k, phase in enumerate(PHASES)
}
"""(lane, phase) -> thread."""

Event = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """Which rounds of a protocol are written (from, to, both included) and how many of its rows that is."""

    first: int
    last: int
    rounds: int
    numbers: list[int]

    @property
    def whole(self) -> bool:
        """Whether nothing is left out."""
        return self.first == 0 and self.last == self.rounds - 1


def choose(run: Run, asked: tuple[int, int] | None = None, limit: int = LIMIT) -> dict[str, Choice]:
    """The rounds that are asked for, or from the first round on as many as `limit` rows allow.

    Protocols with few rows leave their part of the limit to the others; of each at least one round is
    written. Raises BadInput for rounds that no protocol has.
    """
    groups = {name: read_off.by_round(rows) for name, rows in run.traces.items()}
    if asked:
        most = max((max(g, default=-1) for g in groups.values()), default=-1)
        if not 0 <= asked[0] <= asked[1] <= most:
            raise BadInput(f"--rounds {asked[0]}:{asked[1]}: must be A:B with 0 <= A <= B <= {most}")
        return {name: _from_to(found, *asked) for name, found in groups.items()}
    chosen: dict[str, Choice] = {}
    sizes = {name: sum(map(len, found.values())) for name, found in groups.items()}
    for left, name in enumerate(sorted(groups, key=sizes.__getitem__)):
        share, rows, last = limit // (len(groups) - left), 0, -1
        for index, numbers in groups[name].items():
            if rows and rows + len(numbers) > share:
                break
            rows, last = rows + len(numbers), index
        chosen[name] = _from_to(groups[name], 0, last)
        limit -= rows
    return {name: chosen[name] for name in groups}


def _from_to(groups: dict[int, list[int]], first: int, last: int) -> Choice:
    numbers = [n for index, listed in groups.items() if first <= index <= last for n in listed]
    return Choice(first, min(last, max(groups, default=-1)), max(groups, default=-1) + 1, numbers)


def left_out(run: Run, chosen: dict[str, Choice]) -> list[str]:
    """What is not in the file, a line a protocol."""
    return [
        f"{name}: {run.unit}s {c.first} to {c.last} of 0 to {c.rounds - 1}"
        for name, c in chosen.items()
        if not c.whole
    ]


def lines(run: Run, chosen: dict[str, Choice]) -> Iterator[str]:
    """The text of `trace.perfetto.json`, an event a line."""
    about = {
        "simulator": f"simfl {run.summary.versions.get('simfl', '')}".rstrip(),
        "scenario": run.summary.scenario,
        "seed": run.summary.seed,
        "clock": run.summary.clock,
        "time": "virtual; 1 us of the trace is 1 us of the simulated world",
        "left_out": left_out(run, chosen),
    }
    yield '{"displayTimeUnit":"ms","otherData":' + json.dumps(about) + ',"traceEvents":[\n'
    between = ""
    for place, (name, choice) in enumerate(chosen.items()):
        base = place * (FIRST_USER + run.scenario.population.users)
        for event in _events(run, name, choice, base):
            yield between + json.dumps(event, separators=(",", ":"))
            between = ",\n"
    yield "\n]}\n"


def _events(run: Run, name: str, choice: Choice, base: int) -> Iterator[Event]:
    trace = run.traces[name]
    inside = set(choice.numbers)
    used = {
        (row.party, row.lane, phase)
        for row in (trace[n] for n in choice.numbers)
        if isinstance(row, Step)
        for phase, _ in row.segments
    }
    yield from _names(name, read_off.parties(trace[n] for n in choice.numbers), used, base)
    answered = read_off.receipts(trace)
    for number in choice.numbers:
        row = trace[number]
        if isinstance(row, Step):
            yield from _step(row, base)
        elif isinstance(row, Sent):
            yield from _message(trace, number, row, base)
            if number in answered and answered[number] in inside and row.cause in inside:
                yield from _arrow(trace, number, row, answered[number], base)
        else:
            yield from _instant(row, base)
    yield from _counters(run, name, choice, base)


def _names(name: str, parties: list[int], used: set[tuple[int, str, str]], base: int) -> Iterator[Event]:
    order = (SERVER_PID, "server"), (TO_USERS, "link: server to users"), (FROM_USERS, "link: users to server")
    users = [(FIRST_USER + user, f"user {user}") for user in parties if user != SERVER]
    for pid, what in (*order, *users):
        yield _meta("process_name", base + pid, name=f"{name}: {what}")
        yield _meta("process_sort_index", base + pid, sort_index=base + pid)
    for party, lane, phase in sorted(used):
        pid, tid = base + _pid(party), LANES[lane, phase]
        what = phase if lane == "protocol" else f"{phase}: local training"
        yield _meta("thread_name", pid, tid, name=what)
        yield _meta("thread_sort_index", pid, tid, sort_index=tid)


def _meta(kind: str, pid: int, tid: int = 0, **args: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def _pid(party: int) -> int:
    return SERVER_PID if party == SERVER else FIRST_USER + party


def _us(ns: int) -> float:
    """Microseconds that a viewer turns back into the same nanoseconds, though it cuts off fractions."""
    us = ns / 1000
    return us if int(us * 1000) == ns else math.nextafter(us, math.inf)


def _id(base: int, number: int) -> str:
    """Of a message's row, unique in the file; hexadecimal, as viewers read text."""
    return f"0x{base:x}{number:08x}"


def _step(row: Step, base: int) -> Iterator[Event]:
    at = row.start
    args: Event = {"round": row.round}
    more = {"update": row.about, "waited_us": _us(row.start - row.ready), "still_to_do_us": _us(row.left)}
    args |= {key: value for key, value in more.items() if value}
    for phase, ns in row.segments:
        yield {
            "ph": "X", "name": f"{row.call} {row.what}".rstrip(), "cat": phase, "pid": base + _pid(row.party),
            "tid": LANES[row.lane, phase], "ts": _us(at), "dur": _us(ns), "args": args,
        }  # fmt: skip
        at += ns


def _message(trace: Trace, number: int, row: Sent, base: int) -> Iterator[Event]:
    """A message from its sending to its arrival; one that broke off is an instant where it was sent."""
    up = row.to == SERVER
    user = row.sender if up else row.to
    common: Event = {
        "name": f"{row.kind}, user {user}", "cat": row.phase, "pid": base + (FROM_USERS if up else TO_USERS),
        "tid": 1,
    }  # fmt: skip
    args: Event = {"round": row.round, "size_bytes": row.size}
    if row.about:
        args["update"] = row.about
    if row.arrived is None:
        broken = {
            "name": f"{row.kind}, user {user}: broke off",
            "args": args | {"crossed_bytes": row.bytes},
        }
        yield {"ph": "i", **common, "ts": _us(row.sent), "s": "p", **broken}
        return
    yield {"ph": "b", **common, "id": _id(base, number), "ts": _us(row.sent), "args": args}
    yield {"ph": "e", **common, "id": _id(base, number), "ts": _us(row.arrived)}


def _arrow(trace: Trace, number: int, row: Sent, receipt: int, base: int) -> Iterator[Event]:
    """From within the step that sent (its last nanosecond) to the start of the step that received."""
    source, target = trace[row.cause], trace[receipt]
    if not isinstance(source, Step) or not isinstance(target, Step):
        return
    common = {"name": row.kind, "cat": "message", "id": _id(base, number)}
    phase, length = source.segments[-1]
    inside = source.end - 1 if length else source.end
    lane, first = LANES[source.lane, phase], LANES[target.lane, target.segments[0][0]]
    yield {"ph": "s", **common, "pid": base + _pid(source.party), "tid": lane, "ts": _us(inside)}
    where = {"pid": base + _pid(target.party), "tid": first, "ts": _us(target.start)}
    yield {"ph": "f", "bp": "e", **common, **where}


def _instant(row: Row, base: int) -> Iterator[Event]:
    """What has no length: losses, refusals, results."""
    args: Event = {"round": getattr(row, "round", None)}
    match row:
        case Lost():
            name, party = f"lost: {row.why}", row.user
        case GaveUp():
            name, party, args["users"] = "gave up users", SERVER, list(row.users)
        case Ignored() | Refused():
            name, party = f"{type(row).__name__.lower()} {row.message}: {row.why}", row.party
            args["sender"] = "server" if row.sender == SERVER else row.sender
        case Judged():
            name, party = "verdict", SERVER
            args |= {"reliable": row.reliable, "private": row.private}
        case Aborted():
            name, party = f"aborted: {row.reason}", SERVER
        case Aggregated():
            name, party, args["updates"] = "aggregate", SERVER, len(row.members)
        case End():
            name, party = "round ends", SERVER
        case _:
            return
    phase = getattr(row, "phase", "recovery")
    yield {
        "ph": "i", "name": name, "cat": phase, "pid": base + _pid(party), "tid": LANES["protocol", phase],
        "ts": _us(row.at), "s": "p", "args": args,
    }  # fmt: skip


def _counters(run: Run, name: str, choice: Choice, base: int) -> Iterator[Event]:
    trace = run.traces[name]
    span = [t for n in choice.numbers for t in _times(trace[n])] or [0]
    since, until = min(span), max(span)

    def counter(pid: int, what: str, unit: str, changes: read_off.Changes) -> Iterator[Event]:
        start = max((c for c in changes if c[0] < since), default=None)  # what held before the first round
        held = [] if start is None else [(since, start[1])]
        for at, value in [*held, *(c for c in changes if since <= c[0] <= until)]:
            yield {"ph": "C", "name": what, "pid": base + pid, "ts": _us(at), "args": {unit: value}}

    load = "load: messages under way"
    down = read_off.link_load(trace, choice.numbers, up=False)
    yield from counter(TO_USERS, load, "messages", down)
    yield from counter(FROM_USERS, load, "messages", read_off.link_load(trace, choice.numbers, up=True))
    if tells_who_is_online(run, name):
        users = read_off.online(trace, run.scenario.population.users)
        yield from counter(SERVER_PID, "users online", "users", users)
    if run.buffered:
        yield from counter(SERVER_PID, "buffer fill", "updates", read_off.buffer_fill(trace))
    yield from counter(SERVER_PID, "global model version", "version", read_off.version(trace))


def tells_who_is_online(run: Run, name: str) -> bool:
    """Whether all users' coming and going is in the trace: it leaves no rows where it is drawn by round, and
    while a user is idle whom nobody follows."""
    changes = getattr(run.scenario.population.availability, "changes", "")  # none of a file's own class
    if changes == "by round":
        return False
    return changes == "never" or getattr(run.scenario.protocols[name], "connected", True)


def _times(row: Row) -> tuple[int, ...]:
    match row:
        case Step():
            return row.start, row.end
        case Sent():
            return (row.sent,) if row.arrived is None else (row.sent, row.arrived)
        case _:
            return (row.at,)
