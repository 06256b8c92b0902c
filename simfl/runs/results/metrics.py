"""From a trace to what is reported: spans, the critical path, bytes and losses of every round.

Invariant: walking back from the step that ended a round, each of its nanoseconds is booked to exactly one
(phase, party, kind), kind being compute, network or wait; so the shares add up to its duration, in integers.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simfl.trace import rows
from simfl.trace.codes import Discarded, StepsDone
from simfl.trace.rows import PHASES, SERVER, TRAIN, End, Row, Sent, Step, Trace

Path = Counter[tuple[str, int, str]]  # (phase, party, kind) -> nanoseconds
Energy = Counter[tuple[str, int, str]]  # (phase, party, source) -> femtojoules


@dataclass
class Round:
    """A round, or an aggregation of an asynchronous run. Times are virtual nanoseconds."""

    index: int
    """Its number, from 0."""
    start: int
    """[ns] From the start of the run."""
    end: int
    """[ns] From the start of the run."""
    reason: str | None = None
    """Reason of its failure; None if it was completed."""
    invited: Sequence[int] = ()
    """Users, once per invitation."""
    members: tuple[tuple[int, str, int], ...] = ()
    """Updates in the aggregate: user, update, staleness."""
    span: dict[str, int] = field(default_factory=dict)
    """[ns] From first start to last end, by phase."""
    critical: Path = field(default_factory=Counter)
    """[ns] The critical path."""
    bytes_up: int = 0
    """[B] From users to the server."""
    bytes_down: int = 0
    """[B] From the server to users."""
    missed: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Losses by user and phase."""
    ignored: Counter[str] = field(default_factory=Counter)
    """Messages that came late or twice, by reason."""
    stale: tuple[int, ...] = ()
    """Users of updates that were discarded for their staleness."""
    surplus: tuple[int, ...] = ()
    """Users told to stop."""
    refused: Counter[str] = field(default_factory=Counter)
    """Messages that no honest peer sends, by reason."""
    reliable: bool | None = None
    """Verdict of a protocol over a graph."""
    private: bool | None = None
    """Verdict of a protocol over a graph."""
    energy: Energy = field(default_factory=Counter)
    """[fJ] Drawn."""
    partial: tuple[int, ...] = ()
    """Users of updates in the aggregate whose training was cut."""
    steps_share: float = 1.0
    """Mean fraction of minibatches done, over the updates in the aggregate."""

    @property
    def selected(self) -> int:
        return len(self.invited)

    @property
    def dropped(self) -> Counter[str]:
        """The users missed in each phase."""
        phases = Counter[str]()
        for (_, phase), times in self.missed.items():
            phases[phase] += times
        return phases


def rounds(trace: Trace) -> list[Round]:
    """Return the finished rounds of one protocol's trace."""
    buffered = trace.buffered
    ends: list[End] = []
    groups: dict[int, list[Row]] = defaultdict(list)
    by_subject: dict[str, list[Row]] = defaultdict(list)
    energy: dict[int, Energy] = defaultdict(Counter)
    for row in trace:
        if isinstance(row, (Step, Sent)):  # most rows; a union would be made anew for each
            if buffered:
                by_subject[row.about].append(row)
        elif isinstance(row, rows.Presence):
            continue
        elif isinstance(row, rows.Spent):
            energy[row.round].update({(phase, row.party, source): fj for phase, source, fj in row.amounts})
            continue
        # A row of an asynchronous run belongs to the aggregation that was next when it was written.
        groups[len(ends) if buffered else row.round].append(row)
        if isinstance(row, End):
            ends.append(row)
    counted: set[tuple[int, str]] = set()
    entries = []
    for number, end in enumerate(ends):
        group = groups[number if buffered else end.round]
        entry = Round(end.round, end.start, end.at, critical=critical_path(trace, end))
        _count(entry, group, counted if buffered else set())
        if buffered:
            own = by_subject[f"r{end.round}"].copy()
            for user, update, _ in entry.members:
                own += [row for row in by_subject[update] if _is_among(row, {user, SERVER})]
            entry.invited = (
                *(user for user, _, _ in entry.members),
                *(user for user, _ in entry.missed.elements()),
                *entry.stale,
            )
        else:
            (selected,) = (row.users for row in group if isinstance(row, rows.Begin))
            parties = {SERVER, *({user for user, _, _ in entry.members} or selected)}
            own = [row for row in group if _is_among(row, parties)]
            entry.invited = selected
        _count_partial(entry, own)
        if end.cause >= 0:
            own.append(trace[end.cause])
        entry.span = _spans(own, end)
        entry.energy = energy[end.round]
        entries.append(entry)
    return entries


def _is_among(row: Row, parties: set[int]) -> bool:
    """Return True for a step of one of these parties and for a message between two of them."""
    if isinstance(row, Step):
        return row.party in parties
    return isinstance(row, Sent) and {row.sender, row.to} <= parties


def _count_partial(entry: Round, own: Iterable[Row]) -> None:
    """Find the updates of the aggregate whose training was cut; its own rows have their steps."""
    trained = [row for row in own if isinstance(row, Step) and row.call == TRAIN and row.what]
    cut = [(row.party, done) for row in trained if (done := StepsDone.read(row.what))]
    if cut and entry.members:
        entry.partial = tuple(user for user, _ in cut)
        left_out = sum(1 - done.steps / done.whole for _, done in cut)
        entry.steps_share = 1 - left_out / len(entry.members)


def _spans(own: Iterable[Row], end: End) -> dict[str, int]:
    """Return each phase's span: from its first start to its last end, up to the end of the round."""
    first, last = dict.fromkeys(PHASES, end.at), dict.fromkeys(PHASES, 0)
    for row in own:
        if isinstance(row, Step):
            at, parts = row.start, row.segments
        elif isinstance(row, Sent) and row.arrived is not None:
            at, parts = row.sent, ((row.phase, row.arrived - row.sent),)
        else:
            continue
        for phase, ns in parts:
            first[phase] = min(first[phase], at)
            if at < end.at:  # what begins later is of no account, what began before is cut off below
                last[phase] = max(last[phase], at + ns)
            at += ns
    return {phase: max(0, min(last[phase], end.at) - first[phase]) for phase in PHASES}


@dataclass(frozen=True, slots=True)
class PathSegment:
    """A stretch of a critical path: `row` is what held the round up from `start` to `end`, -1 if unknown."""

    phase: str
    party: int
    kind: str
    start: int
    end: int
    row: int


def critical_path(trace: Trace, end: End) -> Path:
    """Return what held a round up: its `path_segments`, summed."""
    path: Path = Counter()
    for segment in path_segments(trace, end):
        path[segment.phase, segment.party, segment.kind] += segment.end - segment.start
    return path


def run_path(trace: Trace, finished: Iterable[Round]) -> Path:
    """Return what held these finished rounds up together; the shares add up to their durations exactly."""
    listed = list(finished)
    # Buffered aggregations overlap: what delayed one lies before it, cut off from its own path. So the path
    # of an asynchronous run is one walk, from its last aggregation back to its beginning.
    if listed and trace.buffered:
        last, begin = listed[-1], listed[0].start
        (end,) = (row for row in trace if isinstance(row, End) and row.round == last.index)
        return critical_path(trace, end._replace(start=begin))
    return sum((entry.critical for entry in listed), Counter())


def path_segments(trace: Trace, end: End) -> list[PathSegment]:
    """Walk back from the end of a round over the rows that held it up; the last stretch comes first.

    `now` is the time down to which everything is booked. Each row first books what lies between its own end
    and `now`, as waiting, then itself, and names the row before it. So no nanosecond is left out or booked
    twice, and what lies before the round's start is cut off.
    """
    path: list[PathSegment] = []
    now = end.at

    def book(phase: str, party: int, kind: str, since: int, row: int) -> None:
        nonlocal now
        since = max(since, end.start)
        if since < now:
            path.append(PathSegment(phase, party, kind, since, now, row))
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
                # A step that was ready earlier than it began waited for the one that held its lane.
                number = row.previous if row.start > row.ready and row.previous >= 0 else row.cause
            case Sent():
                # A link is the user's, whichever way a message goes; one that broke off lasted until `now`.
                party = row.sender if row.to == SERVER else row.to
                phase, number = row.phase, row.cause
                book(phase, party, "wait", row.arrived if row.arrived is not None else now, here)
                book(phase, party, "network", row.sent, here)
            case rows.Lost():
                # The server heard of the loss later than it happened: it waited for the lost user.
                phase, party, number = row.phase, row.user, row.cause
                book(phase, party, "wait", row.at, here)
                cause = trace[number] if number >= 0 else None
                if isinstance(cause, Step):  # until then it sent what that step had made
                    book(cause.segments[-1][0], party, "network", cause.end, here)
            case rows.TimerSet():
                # A deadline is nobody's but the server's waiting, from when it was set.
                phase, number = row.phase, row.cause
                book(phase, SERVER, "wait", row.at, here)
            case rows.Begin() if not path:  # nobody took part: it waited for users, before its first phase
                phase = PHASES[0]
                break
            case _:
                break
    book(phase, party, "wait", end.start, number)  # nothing is known of what is left
    return path


def _count(entry: Round, group: Iterable[Row], counted: set[tuple[int, str]]) -> None:
    """Add up what the rows say; `counted` are (user, about) dropped so far. A user that is lost and given up
    too, in whichever order, is missed in the earlier of the two phases. Of one that is lost and surplus the
    first counts: a user lost once it is not needed is missed by nobody."""
    missed: dict[tuple[int, str], str] = {}
    surplus: set[int] = set()

    def miss(about: str, phase: str, *users: int) -> None:
        for user in set(users) - surplus:
            missed[user, about] = min(missed.get((user, about), phase), phase, key=PHASES.index)

    for row in group:
        match row:
            case Step():  # most rows are steps and messages, so these come first
                pass
            case Sent():
                if row.to == SERVER:
                    entry.bytes_up += row.bytes
                else:
                    entry.bytes_down += row.bytes
            case rows.Aggregated(members=members):
                entry.members = members
            case rows.Aborted(reason=reason):
                entry.reason = reason
            case rows.Lost(user=user, about=about, phase=phase):
                miss(about, phase, user)
            case rows.GaveUp(users=users, about=about, phase=phase):
                miss(about, phase, *users)
            case rows.Surplus(users=users):
                surplus.update(user for user in users if (user, "") not in missed)
            case rows.Ignored(message=message, why=why):
                entry.ignored[f"{message}: {why}"] += 1
                if row.discarded is Discarded.STALE:
                    entry.stale += (row.sender,)
            case rows.Refused(message=message, why=why):
                entry.refused[f"{message}: {why}"] += 1
            case rows.Judged(reliable=reliable, private=private):
                entry.reliable, entry.private = reliable, private
    entry.missed.update(
        (user, phase) for (user, about), phase in missed.items() if (user, about) not in counted
    )
    counted.update(missed)
    entry.surplus = tuple(sorted(surplus))
