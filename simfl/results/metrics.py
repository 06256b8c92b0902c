"""From a trace to what is reported: spans, the critical path, bytes and losses of every round.

Law of the critical path: walking back from the step that ended a round, each nanosecond of the round is
booked to exactly one (phase, party, kind), kind being compute, network or wait; so the shares add up to
the round's duration exactly, in integers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from simfl.results.trace import (
    PHASES,
    SERVER,
    Aborted,
    Aggregated,
    Begin,
    End,
    GaveUp,
    Ignored,
    Judged,
    Lost,
    Presence,
    Refused,
    Row,
    Sent,
    Step,
    TimerSet,
    Trace,
)
from simfl.results.trace_codes import Discarded

Path = dict[tuple[str, int, str], int]
"""(phase, party, kind) -> nanoseconds."""


@dataclass
class Round:
    """A round (of an asynchronous run: one aggregation), times in nanoseconds."""

    index: int
    start: int
    end: int
    reason: str | None
    selected: int
    members: tuple[tuple[int, str, int], ...]
    span: dict[str, int]
    critical: Path
    bytes_up: int = 0
    bytes_down: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    discarded: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    reliable: bool | None = None
    private: bool | None = None


def rounds(trace: Trace) -> list[Round]:
    """The finished rounds of one protocol's trace."""
    seldom: list[Row] = [row for row in trace if not isinstance(row, Step | Sent)]
    ends = [row for row in seldom if isinstance(row, End)]
    results = {row.round: row for row in seldom if isinstance(row, Aggregated)}
    reasons = {row.round: row.reason for row in seldom if isinstance(row, Aborted)}
    begins = {row.round: row for row in seldom if isinstance(row, Begin)}
    buffered = trace.buffered
    groups = _by_time(trace, ends) if buffered else _by_round(trace)
    names = _by_about(trace) if buffered else {}
    out = []
    counted: set[tuple[int, str]] = set()
    for end in ends:
        members = results[end.round].members if end.round in results else ()
        if buffered:
            mine: list[Row] = [
                row
                for user, name, _ in members
                for row in names.get(name, ())
                if _is_among(row, {user, SERVER})
            ]
            mine += names.get(f"r{end.round}", [])
            selected = 0
        else:
            begin = begins[end.round]
            parties = {SERVER, *({user for user, _, _ in members} or begin.users)}
            mine = [row for row in groups[end.round] if _is_among(row, parties)]
            selected = len(begin.users)
        if end.cause >= 0:
            mine.append(trace[end.cause])
        entry = Round(
            end.round, end.start, end.at, reasons.get(end.round), selected, members,
            _spans(mine, end), critical_path(trace, end),
        )  # fmt: skip
        _count(entry, groups[end.round], counted if buffered else set())
        if buffered:
            entry.selected = len(members) + sum(entry.dropped.values()) + entry.discarded
        out.append(entry)
    return out


def _by_round(trace: Trace) -> dict[int, list[Row]]:
    groups: dict[int, list[Row]] = defaultdict(list)
    for row in trace:
        if not isinstance(row, Presence):
            groups[row.round].append(row)
    return groups


def _by_time(trace: Trace, ends: list[End]) -> dict[int, list[Row]]:
    """Rows of an asynchronous run belong to the aggregation that was next when they were written."""
    groups: dict[int, list[Row]] = {}
    since = 0
    for end in ends:
        until = trace.index(end, since) + 1
        groups[end.round], since = trace[since:until], until
    return groups


def _by_about(trace: Trace) -> dict[str, list[Step | Sent]]:
    names: dict[str, list[Step | Sent]] = defaultdict(list)
    for row in trace:
        if isinstance(row, Step | Sent) and row.about:
            names[row.about].append(row)
    return names


def _is_among(row: Row, parties: set[int]) -> bool:
    """Whether a row is a step of one of these parties or a message between two of them."""
    if isinstance(row, Step):
        return row.party in parties
    return isinstance(row, Sent) and row.sender in parties and row.to in parties


def _spans(mine: Iterable[Row], end: End) -> dict[str, int]:
    """From a phase's first start to its last end, up to the end of the round."""
    first = dict.fromkeys(PHASES, end.at)
    last = dict.fromkeys(PHASES, 0)
    parts: tuple[tuple[str, int], ...]
    for row in mine:
        if isinstance(row, Sent):
            parts, at = ((row.phase, row.arrived - row.sent),) if row.arrived is not None else (), row.sent
        elif isinstance(row, Step):
            parts, at = row.segments, row.start
        else:
            continue
        for phase, ns in parts:
            if at < first[phase]:
                first[phase] = at
            if at + ns > last[phase] and at < end.at:
                last[phase] = at + ns
            at += ns
    return {phase: max(0, min(last[phase], end.at) - first[phase]) for phase in PHASES}


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a critical path: `row` is what held the round up from `start` to `end`, -1 if unknown."""

    phase: str
    party: int
    kind: str
    start: int
    end: int
    row: int


def critical_path(trace: Trace, end: End) -> Path:
    """What held a round up: its `pieces`, summed."""
    path: Path = defaultdict(int)
    for piece in pieces(trace, end):
        path[piece.phase, piece.party, piece.kind] += piece.end - piece.start
    return dict(path)


def run_path(trace: Trace, finished: Iterable[Round]) -> Path:
    """What held these finished rounds up, all together; the shares add up to their durations exactly.

    Buffered aggregations overlap: what delayed one lies before it, cut off from its own path. So the path
    of an asynchronous run is one walk, from its last aggregation back to its beginning.
    """
    listed = list(finished)
    path: Path = defaultdict(int)
    if listed and trace.buffered:
        last, begin = listed[-1], listed[0].start
        (end,) = (row for row in trace if isinstance(row, End) and row.round == last.index)
        return critical_path(trace, End(end.round, begin, end.at, end.cause))
    for entry in listed:
        for key, ns in entry.critical.items():
            path[key] += ns
    return dict(path)


def pieces(trace: Trace, end: End) -> list[Piece]:
    """Walk back from the end of a round over the rows that held it up; the last stretch comes first."""
    path: list[Piece] = []
    now = end.at

    def book(phase: str, party: int, kind: str, since: int, row: int) -> None:
        nonlocal now
        since = max(since, end.start)
        if since < now:
            path.append(Piece(phase, party, kind, since, now, row))
            now = since

    phase, party, number = "recovery", SERVER, end.cause
    while number >= 0 and now > end.start:
        here, row = number, trace[number]
        match row:
            case Step():
                phase, party = row.segments[-1][0], row.party
                book(phase, party, "wait", row.end, here)
                at = row.end
                for phase, ns in reversed(row.segments):
                    at -= ns
                    book(phase, party, "compute", at, here)
                number = row.previous if row.start > row.ready and row.previous >= 0 else row.cause
            case Sent():
                party = row.sender if row.to == SERVER else row.to
                phase, number = row.phase, row.cause
                book(phase, party, "wait", row.arrived if row.arrived is not None else now, here)
                book(phase, party, "network", row.sent, here)
            case Lost():
                phase, party, number = row.phase, row.user, row.cause
                book(phase, party, "wait", row.at, here)
                cause = trace[number] if number >= 0 else None
                if isinstance(cause, Step):  # until then it sent what that step had made
                    book(cause.segments[-1][0], party, "network", cause.end, here)
            case TimerSet():
                phase, number = row.phase, row.cause
                book(phase, SERVER, "wait", row.at, here)
            case Begin() if not path:  # nobody took part: it waited for users, before its first phase
                phase = PHASES[0]
                break
            case _:
                break
    book(phase, party, "wait", end.start, number)
    return path


def _count(entry: Round, group: Iterable[Row], counted: set[tuple[int, str]]) -> None:
    """Bytes, losses, and what was thrown away or refused; `counted` are (user, about) dropped so far.

    Who is lost and given up too, in whichever order, is missed in the earlier of the two phases.
    """
    missed: dict[tuple[int, str], str] = {}

    def miss(user: int, about: str, phase: str) -> None:
        missed[user, about] = min(missed.get((user, about), phase), phase, key=PHASES.index)

    for row in group:
        if isinstance(row, Step):
            continue
        if isinstance(row, Sent):
            if row.to == SERVER:
                entry.bytes_up += row.bytes
            else:
                entry.bytes_down += row.bytes
            continue
        match row:
            case Lost(user=user, about=about, phase=phase):
                miss(user, about, phase)
            case GaveUp(users=users, about=about, phase=phase):
                for user in users:
                    miss(user, about, phase)
            case Ignored(message=message, why=why):
                entry.ignored[f"{message}: {why}"] += 1
                entry.discarded += row.discarded is Discarded.STALE
            case Refused(message=message, why=why):
                entry.refused[f"{message}: {why}"] += 1
            case Judged(reliable=reliable, private=private):
                entry.reliable, entry.private = reliable, private
    entry.dropped.update(phase for name, phase in missed.items() if name not in counted)
    counted.update(missed)
