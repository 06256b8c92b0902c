"""Sealed rows passed to others than they are for: whatever a server passes on, a row opens where it belongs.

A session is played first as it should be, and each row that a user sealed is followed to the user that
opens it. Then sessions are played in which the server passes one row on in place of another. A row that is
passed on is a copy, so that it is seen if it opens: nothing is asked of the machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from simfl.crypto import keys
from simfl.dataplane.handles import Handle, Kernel, Shape
from simfl.dataplane.symbolic import SymbolicOps
from simfl.dataplane.terms import Public, Sealed, Secret, Term
from simfl.privacy.leaks.views import NamedEntropy, altered, handles
from simfl.protocols.machine import Effects, Message
from simfl.studies.proof.cases import Draw, Small, SmallBuffer
from simfl.studies.proof.sessions import ANOTHER, Redrawn, keys_of

MOST_FLOWS = 12
"""Rows in whose place others are passed on: all of a round of four users."""


class Place(NamedTuple):
    """A row of a message; number: of the messages of its kind that the user sent or was sent."""

    user: int
    kind: str
    number: int
    field: str
    row: int


class Flow(NamedTuple):
    """A sealed row on its way: where it is in what its sender sends, and in what its receiver is sent."""

    sealed: Place
    passed: Place

    @property
    def sender(self) -> int:
        return self.sealed.user

    @property
    def to(self) -> int:
        return self.passed.user


Instead = Callable[[], Sealed | None]
SameKey = tuple[int, int, int] | None


class _Opening(SymbolicOps):
    """Operations on terms that keep which sealed rows were opened."""

    def __init__(self, q: int) -> None:
        super().__init__(q)
        self.opened = set[int]()
        self._alive: list[Term] = []  # so that no other row gets the number of one that is gone

    def _run(self, kernel: Kernel, shape: Shape, args: tuple[Any, ...]) -> Handle:
        handle = super()._run(kernel, shape, args)
        if kernel is keys.open_:
            for (row,) in self._content(args[1]):
                self._alive.append(row)
                self.opened.add(id(row))
        return handle


def _sealed(message: Message) -> Iterator[tuple[str, int, Sealed]]:
    """Yield the sealed rows of a message: field, row, and what is there."""
    for name, handle in handles(message):
        for k, row in enumerate(handle.content):
            if len(row) == 1 and isinstance(row[0], Sealed):
                yield name, k, row[0]


@dataclass
class _Session:
    """A session with the rows that its users sealed, and those that the server passed on."""

    small: Small | SmallBuffer
    draw: Draw = NamedEntropy
    name: bytes | None = None
    ops: _Opening = field(init=False)
    sealed: dict[Place, Sealed] = field(default_factory=dict)
    passed: dict[Place, Sealed] = field(default_factory=dict)
    planted: Sealed | None = None

    def play(
        self, at: Place | None = None, instead: Instead = lambda: None, same_key: SameKey = None
    ) -> None:
        """Play the session. at: the row in whose place a copy of `instead()` is passed on. same_key: a user
        that is told the key of the third user in place of the second's."""
        cohort, sent = self.small.cohort, Counter[tuple[int, str, str]]()
        self.ops = _Opening(cohort.scenario.params(cohort.protocol, 1).q)

        def alter(to: int, message: Message) -> Message:
            sent[to, "to", message.kind] += 1
            for name, k, row in list(_sealed(message)):
                place = Place(to, message.kind, sent[to, "to", message.kind], name, k)
                self.passed[place] = row
                other = instead() if place == at else None
                if other is not None:
                    self.planted = replace(other)
                    message = _with_row(message, name, k, self.planted)
            return message if same_key is None or same_key[0] != to else _with_key_of(message, *same_key[1:])

        alters = altered(alter)

        def call(party: int, name: str, own: Callable[..., Effects], *arguments: Any) -> Effects:
            if name == "receive":
                user, message = arguments
                sent[user, "from", message.kind] += 1
                for part, k, row in _sealed(message):
                    self.sealed[Place(user, message.kind, sent[user, "from", message.kind], part, k)] = row
            return alters(party, name, own, *arguments)

        self.small.session(self.ops, self.draw, self.name, call)

    @property
    def flows(self) -> list[Flow]:
        at = {id(row): place for place, row in self.sealed.items()}
        return [Flow(at[id(row)], place) for place, row in self.passed.items() if id(row) in at]

    @property
    def opens(self) -> bool:
        return self.planted is not None and id(self.planted) in self.ops.opened


def _with_row(message: Message, name: str, k: int, row: Term) -> Message:
    handle: Handle = getattr(message, name)
    content = [*handle.content[:k], (row,), *handle.content[k + 1 :]]
    return replace(message, **{name: _filled(handle, content)})


def _with_key_of(message: Message, user: int, other: int) -> Message:
    """Return a message with the public keys of another user in place of a user's."""

    def told(item: Any) -> Any:
        if isinstance(item, Public) and isinstance(item.secret, Secret) and item.secret.party == user:
            return Public(Secret(other, item.secret.name, item.secret.scope))
        return item

    altered_rows = {
        name: _filled(handle, [tuple(map(told, row)) for row in handle.content])
        for name, handle in handles(message)
    }
    return replace(message, **altered_rows)


def _filled(handle: Handle, content: Any) -> Handle:
    return Handle(handle.rows, handle.columns, handle.dtype, content)


@dataclass
class Swaps:
    """The swaps that were tried, by their kind, and those after which a row opened where it should not."""

    tried: Counter[str] = field(default_factory=Counter)
    opened: dict[str, str] = field(default_factory=dict)

    def try_one(
        self, session: _Session, words: str, flow: Flow, instead: Instead, same_key: SameKey = None
    ) -> None:
        """Play a session in which the row that `instead` returns is passed on in place of a flow's."""
        session.play(flow.passed, instead, same_key)
        if session.planted is None:  # a user that was told a wrong key left before there was a row
            return
        self.tried[words] += 1
        if session.opens and words not in self.opened:
            self.opened[words] = (
                f"user {flow.to} opens {words} in the {flow.passed.kind} of user {flow.sender}"
            )


def swaps(small: Small | SmallBuffer) -> Swaps:
    """Try swaps of rows in a session without losses: of the first rows that there are, with one other of each
    kind."""
    report, first = Swaps(), _Session(small)
    first.play()
    flows = first.flows
    draw = partial(Redrawn, keys_of(first.ops))
    for flow in flows[:MOST_FLOWS]:
        for words, (other, key) in _others(flow, flows).items():
            now = _Session(small)
            report.try_one(now, words, flow, partial(now.sealed.get, other.sealed), key)
        earlier = partial(first.sealed.get, flow.sealed)
        report.try_one(_Session(small, draw, ANOTHER), "a row of another session", flow, earlier)
    return report


def _others(flow: Flow, flows: list[Flow]) -> dict[str, tuple[Flow, SameKey]]:
    """Return rows that could be passed on in place of one: what each is, and who is told which key."""
    others: dict[str, tuple[Flow, SameKey]] = {}
    for g in flows:
        if g is flow:
            continue
        if (g.sender, g.to) == (flow.sender, flow.to):
            others.setdefault("another row of the same sender", (g, None))
        elif g.to == flow.to:
            others.setdefault("another sender's row", (g, None))
        elif (g.sender, g.to) == (flow.to, flow.sender):
            others.setdefault("its own row, sent back", (g, None))
        elif g.sender == flow.sender:
            others.setdefault("a row for another user", (g, None))
            # As if its sender had one key with both: it was told this user's in place of the other's.
            same_key = flow.sender, g.to, flow.to
            others.setdefault("a row for another user, under its own key", (g, same_key))
    return others
