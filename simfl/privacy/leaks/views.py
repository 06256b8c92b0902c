"""Rounds on symbols, and what an adversary sees of them.

An adversary is the server and a coalition of users. It sees all that they receive, also what comes too late
or is thrown away, and all that they drew; what they send follows from that. Each user is a machine by itself,
so a server that lies is played by `alter`: what a user is told instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, NamedTuple

from simfl.dataplane.handles import F32, Handle
from simfl.dataplane.ops import Ops
from simfl.dataplane.symbolic import Named, SymbolicOps
from simfl.dataplane.terms import Coordinate, Form, Item, Secret, Term, residue, who
from simfl.privacy.leaks.elimination import Line
from simfl.privacy.leaks.knowledge import Knowledge
from simfl.protocols.lightsecagg import Coded
from simfl.protocols.loopback import run_round
from simfl.protocols.machine import SERVER, Effects, Message, Params, Result, Send, Update, Verdict
from simfl.protocols.protocol import Protocol
from simfl.random_streams import Entropy, Name
from simfl.runs.watch import Call, watched

Fate = Callable[[int, Any], str]
Alter = Callable[[int, Message], Message | Sequence[Message]]
"""(user, message of the server) -> what the user is told instead, which may be several messages."""


class NamedEntropy(Entropy):
    """Entropy whose bytes carry their names."""

    def __init__(self, root: bytes, *scope: Name) -> None:
        super().__init__(root, *scope)
        self.drawn: list[Term] = []
        """Secrets that a machine drew, in order."""

    def __call__(self, name: str) -> bytes:
        drawn = Named(super().__call__(name))
        drawn.term = Secret(int(self.scope[0]), name, tuple(self.scope[1:]))
        self.drawn.append(drawn.term)
        return drawn


class Sent(NamedTuple):
    """A message that arrived."""

    sender: int
    to: int
    message: Message
    label: str = ""
    """Prefix that names its round, where there are several."""


@dataclass
class Transcript:
    """All that was sent and drawn, and what may be known of it.

    Attributes:
        q: Modulus of the updates' field.
        users: Users of the round.
        sent: Messages that arrived.
        drawn: Secrets that each party drew.
        results: Sums that machines computed, as linear forms in the updates.
        sums: Sums that may be known, the results among them.
        least: Minimum number of users in one further sum that may be known, whichever it is; None for none.
        misuse: Seeds with two purposes, nonces with two rows, in words.
        exact: Each result is the sum over its members, for all updates.
        verdict: The server's own, of a round over a graph.
        kernels: Kernels that machines ran.
    """

    q: int
    users: tuple[int, ...]
    sent: list[Sent] = field(default_factory=list)
    drawn: dict[int, list[Term]] = field(default_factory=dict)
    results: list[Line] = field(default_factory=list)
    sums: list[Line] = field(default_factory=list)
    least: int | None = None
    misuse: list[str] = field(default_factory=list)
    exact: bool = True
    verdict: Verdict | None = None
    kernels: set[Any] = field(default_factory=set)

    def of_liar(self, least: int) -> Transcript:
        """Return it as of a server that lies: of sums, any single one over enough users may be known."""
        return replace(self, results=[], sums=[], least=least)

    def view(self, coalition: Collection[int] = (), base: Knowledge | None = None) -> Knowledge:
        """Return what the server and these users know. base: what the server alone knows of this."""
        knowledge = base.joined_by(coalition) if base is not None else Knowledge(self.q, coalition)
        adversary = {SERVER, *coalition}
        new = adversary if base is None else set(coalition)
        for party in new:
            for secret in self.drawn.get(party, ()):
                knowledge.see(f"drawn by {who(party)}", secret)
        for sent in self.sent:  # of what the adversary's own parties send nothing is news to it
            if sent.to in new and sent.sender not in adversary:
                for label, item in items(sent):
                    knowledge.see(label, item)
        return knowledge.close()


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind))


def values(message: Message) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a message: name and value."""
    kind: Any = type(message)
    return ((name, getattr(message, name)) for name in _names(kind))


def handles(message: Message) -> Iterator[tuple[str, Handle]]:
    """Yield the fields of a message that hold rows."""
    return ((name, value) for name, value in values(message) if isinstance(value, Handle))


def items(sent: Sent) -> Iterator[tuple[str, Item]]:
    """Yield what a message holds, item by item, each with words for it."""
    message = sent.message
    to = "" if sent.to == SERVER else f" to {who(sent.to)}"
    subject = "" if message.subject is None else f" {message.subject}"
    head = f"{sent.label}{message.kind} of {who(sent.sender)}{to}{subject}"
    for _, handle in handles(message):
        for k, row in enumerate(handle.content):
            place = f", row {k}" if len(handle.content) > 1 else ""
            for j, item in enumerate(row):
                yield f"{head}{place}{f' [{j}]' * (len(row) > 1)}", item


def shortened(kind: Protocol, p: Params) -> Params:
    """Return parameters with updates as short as tells all: one column of a code has U - T coordinates."""
    return replace(p, d=max(1, p.U - p.T - kind.weighted) if isinstance(kind, Coded) else 1)


@dataclass(frozen=True)
class Setup:
    """A protocol with parameters of few users."""

    kind: Protocol
    params: Params
    users: tuple[int, ...]
    root: bytes = bytes(32)
    """Root of all entropy."""

    @property
    def coordinates(self) -> int:
        """The length of what is summed."""
        return self.params.d + (self.kind.offline and self.kind.weighted)

    @property
    def least(self) -> int:
        """The fewest users over whom an aggregate may be."""
        return max(self.kind.needed(stage, self.params) for stage in self.kind.round_timers)

    def machines(
        self, ops: Ops, draw: Callable[..., Entropy], index: int
    ) -> tuple[Any, dict[int, Any], dict[int, Any]]:
        """Return the server, its clients and the entropy of each party, of one round."""
        kind, p = self.kind, self.params
        entropies = {party: draw(self.root, party, index) for party in (SERVER, *self.users)}
        clients = {user: kind.client(user, p, ops, entropies[user]) for user in self.users}
        return kind.server(self.users, p, ops, entropies[SERVER]), clients, entropies

    def update(self, user: int, update: Hashable) -> Update:
        """Return an update of unknown coordinates; users differ in weight."""
        row = tuple(Coordinate(user, update, k) for k in range(self.params.d))
        return Update(Handle(1, self.params.d, F32, [row]), user + 1)

    def sum_over(self, factors: Mapping[tuple[int, Hashable], Any]) -> list[Line]:
        """Return the weighted sum over updates, coordinate by coordinate."""
        ks, q = range(self.coordinates), self.params.q
        weighted = {update: residue(factor, q) for update, factor in factors.items()}
        return [{Coordinate(*update, k): c for update, c in weighted.items()} for k in ks]


def play(
    setup: Setup,
    fate: Fate = lambda user, message: "deliver",
    index: int = 0,
    alter: Alter | None = None,
    ops: SymbolicOps | None = None,
    update: Hashable | None = None,
    draw: Callable[..., NamedEntropy] = NamedEntropy,
    call: Call | None = None,
) -> Transcript:
    """Play one synchronous round over the loopback.

    index: of the round, which tells its entropy, and unless `update` is given its updates, from others'.
    draw: makes a party's source of entropy. call: takes each call of the server.
    """
    kind, p, users = setup.kind, setup.params, setup.users
    ops, update = ops or SymbolicOps(p.q), index if update is None else update
    server, clients, entropies = setup.machines(ops, draw, index)
    if alter is not None:
        server = watched(server, SERVER, altered(alter))
    if call is not None:
        server = watched(server, SERVER, call)
    updates = {user: setup.update(user, update) for user in users}
    out = run_round(server, clients, updates, fate, kind.offline)
    label = f"round {index}: " if index else ""
    seen = Transcript(p.q, users)
    seen.sent = [Sent(*message, label) for message in out.sent]
    seen.verdict = out.verdict
    seen.drawn = {party: entropy.drawn for party, entropy in entropies.items()}
    told: Iterable[int] | None = getattr(server, "survivors", None)
    if out.result is not None:
        seen.results = sum_of(setup, out.result, {u: (u, update) for u in users}, updates)
        seen.sums = seen.results
        seen.exact = is_exact(out.result, seen.results, p.q)
    elif told is None:
        seen.least = setup.least
    else:
        seen.sums = setup.sum_over({(user, update): 1 for user in told}) if told else []
    seen.misuse += ops.misuse
    seen.kernels |= ops.kernels
    return seen


def altered(alter: Alter) -> Call:
    """Return what has a server say something else."""

    def call(party: int, name: str, own: Callable[..., Effects], *arguments: Any) -> Effects:
        effects: Effects = []
        for effect in own(*arguments):
            if isinstance(effect, Send):
                said = alter(effect.to, effect.message)
                effects += [Send(effect.to, one) for one in ([said] if isinstance(said, Message) else said)]
            else:
                effects.append(effect)
        return effects

    return call


def sum_of(
    setup: Setup, result: Result, names: Mapping[Any, tuple[int, Hashable]], updates: Mapping[int, Update]
) -> list[Line]:
    """Return the sum that a result stands for. names: user, or the update's id -> the update's name."""
    factors = {}
    for member in result.members:
        # Over the field an update was multiplied by its weight before it was masked.
        weight = 1 if setup.kind.offline or not setup.kind.weighted else updates[member.user].weight
        factors[names[member.update or member.user]] = residue(member.factor, 0) * weight
    return setup.sum_over(factors)


def is_exact(result: Result, lines: Sequence[Line], q: int) -> bool:
    """Return True if a result's total is, for all updates and not for some, these sums."""
    total = [item.over(q).of if isinstance(item, Form) else {item: 1} for item in result.total.content[0]]
    return total == list(lines)


def union(transcripts: Sequence[Transcript]) -> Transcript:
    """Return several rounds as one: an adversary forgets nothing."""
    whole = Transcript(transcripts[0].q, tuple(sorted({u for one in transcripts for u in one.users})))
    for one in transcripts:
        whole.sent += one.sent
        whole.results += one.results
        whole.sums += one.sums
        whole.least = one.least if whole.least is None else whole.least
        whole.exact &= one.exact
        whole.kernels |= one.kernels
        whole.misuse += [law for law in one.misuse if law not in whole.misuse]
        for party, drawn in one.drawn.items():
            whole.drawn.setdefault(party, []).extend(drawn)
    return whole
