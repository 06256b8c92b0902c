"""A malicious server: what it learns by sending users inconsistent messages that they accept.

A round runs honestly until the server announces the survivors. Each client is forked there, and its answer to
every survivor set is computed once. An attack sends each user one of the sets that it accepts. A lie about
who shared, or about keys, comes earlier in the round. Where survivors are signed, a user gets all signatures
of its set (by honest users with the same set, and by colluders), and if it refuses these, all others too.

Invariant: a server learns at most one sum, over at least U users (t in SecAgg), whichever they are. The lies
are a menu: if none of them leaks, another one may.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, product
from typing import Any

from simfl.dataplane.handles import Handle
from simfl.dataplane.terms import Item, Public, Secret
from simfl.errors import BadInput
from simfl.privacy.leaks.coalitions import check_colluders
from simfl.privacy.leaks.knowledge import Knowledge
from simfl.privacy.leaks.laws import Leak, beyond
from simfl.privacy.leaks.views import Alter, Sent, Setup, Transcript, items, play
from simfl.protocols.index_views import Users
from simfl.protocols.keyed_messages import Inbox, Roster, Signature, Signatures, Survivors
from simfl.protocols.machine import SERVER, Message, Send

ALL_LIES, TWO_STORIES = 4, 6
"""The most users to whom every set is told, and the most to whom one of two is."""

Told = Mapping[int, tuple[int, ...]]
"""Honest user -> the survivors that it is told; who is not there is told nothing."""
LIES = ("survivors", "shared", "keys")


class _Noting:
    """A protocol whose users' machines are noted down as they are made."""

    def __init__(self, kind: Any) -> None:
        self.kind, self.clients = kind, dict[int, Any]()

    def client(self, user: int, *how: Any) -> Any:
        self.clients[user] = self.kind.client(user, *how)
        return self.clients[user]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kind, name)


@dataclass
class ForkedRound:
    """A round up to the announcement of survivors, from which each client is forked for each set.

    Attributes:
        seen: What was sent before.
        waiting: By user, its client before the announcement.
    """

    setup: Setup
    seen: Transcript
    waiting: dict[int, Any]
    _heard: dict[tuple[int, tuple[int, ...]], tuple[Any, Message | None]] = field(default_factory=dict)

    def hear(self, user: int, told: tuple[int, ...]) -> tuple[Any, Message | None]:
        """Return a copy of a user's machine that was told of survivors, and what it says, None if nothing."""
        if (user, told) not in self._heard:
            self._heard[user, told] = said(self.waiting[user], Survivors(Users(told)))
        return self._heard[user, told]

    def sets(self, user: int) -> list[tuple[int, ...]]:
        """Return the sets of survivors that a user does not refuse."""
        users = self.setup.users
        some = chain.from_iterable(combinations(users, n) for n in range(2, len(users) + 1))
        return [told for told in some if self.hear(user, told)[1] is not None]

    def answers(self, told: Told, coalition: Sequence[int]) -> Iterator[Sent]:
        """Yield the messages of honest users that were told these sets: signatures, then answers."""
        for user, users in told.items():
            machine, message = self.hear(user, users)
            if isinstance(message, Signature):
                yield Sent(user, SERVER, message)
                shown = (self.signatures(users, told, coalition, others) for others in (False, True))
                answers = (said(machine, signatures)[1] for signatures in shown)
                message = next((answer for answer in answers if answer is not None), None)
            if message is not None:
                yield Sent(user, SERVER, message)

    def signatures(
        self, users: tuple[int, ...], told: Told, coalition: Sequence[int], others: bool
    ) -> Signatures:
        """Return the signatures of a set that the server has or can make; others: and, of those who were told
        another set, their signatures of that one, which no user should take."""
        heard = {user: users if user in coalition else told.get(user, ()) for user in users}
        of = {
            user: message
            for user, what in heard.items()
            if (what == users or (others and what))
            and isinstance(message := self.hear(user, what)[1], Signature)
        }
        rows = [row for message in of.values() for row in message.signed.content]
        return Signatures(Users(of), Handle(len(rows), 64, next(iter(of.values())).signed.dtype, rows))


def said(machine: Any, message: Message) -> tuple[Any, Message | None]:
    """Return a copy of a machine that took a message, and what it sends; None if it sends nothing."""
    machine = copy.copy(machine)
    sends = [e.message for e in machine.receive(SERVER, message) if isinstance(e, Send)]
    return machine, sends[0] if sends else None


def ask(setup: Setup, lie: Alter = lambda to, message: message) -> ForkedRound:
    """Play a round in which nobody is lost, up to the question who survived. lie: what is told before."""
    kind, waiting = _Noting(setup.kind), dict[int, Any]()

    def alter(to: int, message: Message) -> Message | Sequence[Message]:
        if isinstance(message, Survivors):
            waiting[to] = copy.copy(kind.clients[to])
        return lie(to, message)

    anything: Any = kind
    seen = play(replace(setup, kind=anything), alter=alter)
    seen.sent = [sent for sent in seen.sent if sent.message.phase != "recovery"]
    return ForkedRound(setup, seen.of_liar(setup.least), waiting)


# --- lies about who survived -------------------------------------------------------------------------
def every_lie(asked: ForkedRound, coalition: Sequence[int]) -> Iterator[Told]:
    """Yield every way to tell each honest user any set that it does not refuse."""
    honest = [user for user in asked.waiting if user not in coalition]
    for told in product(*map(asked.sets, honest)):
        yield dict(zip(honest, told, strict=True))


def two_stories(asked: ForkedRound, coalition: Sequence[int]) -> Iterator[Told]:
    """Yield every way to tell each honest user one of two sets, or nothing if it would refuse it."""
    honest = [user for user in asked.waiting if user not in coalition]
    may = {user: set(asked.sets(user)) for user in honest}
    for stories in combinations(sorted(set[tuple[int, ...]]().union(*may.values())), 2):
        for told in product(stories, repeat=len(honest)):
            yield {user: one for user, one in zip(honest, told, strict=True) if one in may[user]}


def one_missing(asked: ForkedRound, coalition: Sequence[int]) -> Iterator[Told]:
    """Yield, for each size of a group: it is told that all survived, the others that user 0 did not."""
    users = asked.setup.users
    honest = [user for user in users if user not in coalition]
    for size in range(1, len(honest)):
        yield {user: users if k < size else users[1:] for k, user in enumerate(honest)}


def few_alive(asked: ForkedRound, coalition: Sequence[int]) -> Iterator[Told]:
    """Yield, for each number of users: each honest user is told of them, of itself, and of as few others as
    may be. So these few are alive to all, and every other one is dead to as many as can be."""
    users = asked.setup.users
    honest = [user for user in users if user not in coalition]
    for size in range(1, asked.setup.least):
        claims, told = Counter[int](), dict[int, tuple[int, ...]]()
        for user in reversed(honest):
            named = {*honest[:size], *coalition, user}
            rest = sorted(set(honest) - named, key=lambda other: (claims[other], -other))
            named |= set(rest[: max(0, asked.setup.least - len(named))])
            claims.update(named)
            told[user] = tuple(sorted(named))
        yield told


# --- lies about who shared, and about keys -------------------------------------------------------------
def narrow(target: int, partners: Sequence[int]) -> Alter:
    """Tell one user that only these others shared."""

    def lie(to: int, message: Message) -> Message:
        if to != target or not isinstance(message, Inbox):
            return message
        kept = [k for k, sender in enumerate(message.senders) if sender in partners]
        rows = [message.sealed.content[k] for k in kept]
        sealed = replace(message.sealed, rows=len(rows), content=rows)
        return Inbox(Users(message.senders[k] for k in kept), sealed)

    return lie


def spread(asked: ForkedRound, partners: Sequence[int], coalition: Sequence[int]) -> Told:
    """Tell each honest user but user 0 a set with user 0 that lacks as many of its partners as may be: to
    enough users each partner is lost."""
    users, least = asked.setup.users, asked.setup.least
    short = {user: least - len(coalition) for user in partners if user not in coalition}
    told = {}
    for user in sorted(set(users[1:]) - set(coalition), key=lambda user: (user in partners, user)):
        lost = sorted((p for p in short if p != user), key=lambda p: -short[p])[: len(users) - least]
        for partner in lost:
            short[partner] -= 1
        told[user] = tuple(one for one in users if one not in lost)
    return told


def own_key(row: int) -> Secret:
    """Return the server's secret key behind a row of a roster; users refuse one key for two of them."""
    return Secret(SERVER, f"own key {row}")


def own_keys(to: int, message: Message) -> Message:
    """Send each user keys of the server in place of every other user's."""
    if not isinstance(message, Roster):
        return message
    n = len(message.users)
    rows: list[tuple[Item, ...]] = [
        row if message.users[k % n] == to else (Public(own_key(k)),)
        for k, row in enumerate(message.publics.content)
    ]
    return replace(message, publics=replace(message.publics, content=rows))


# --- what they tell ------------------------------------------------------------------------------------
@dataclass
class Lied:
    """The lies that were tried, and the first by which a server learns more than one sum over enough users.

    Attributes:
        tried: Number of lies, by the number of colluders.
        coalition: Colluders of the lie that leaks.
        told: That lie, in words.
        leak: The combination of updates that it reveals; None if no lie leaks.
    """

    tried: Counter[int] = field(default_factory=Counter)
    coalition: tuple[int, ...] = ()
    told: str = ""
    leak: Leak | None = None

    def __str__(self) -> str:
        who = f"users {', '.join(map(str, self.coalition))} collude" if self.coalition else "nobody colludes"
        return f"{who}; {self.told}:\n{self.leak}"


def search(
    asked: ForkedRound, coalition: tuple[int, ...], lies: Iterator[Told], report: Lied, before: str = ""
) -> bool:
    """Try lies about survivors until one leaks. before: what was told earlier, in words."""
    base = asked.seen.view(coalition)
    for told in lies:
        report.tried[len(coalition)] += 1
        knowledge = base.joined_by(())
        for sent in asked.answers(told, coalition):
            for label, item in items(sent):
                knowledge.see(label, item)
        leak = beyond(asked.seen, knowledge.close())
        if leak is not None:
            report.coalition, report.told, report.leak = coalition, before + in_words(told), leak
            return True
    return False


def in_words(told: Told) -> str:
    stories: dict[tuple[int, ...], list[int]] = {}
    for user, users in sorted(told.items()):
        stories.setdefault(users, []).append(user)
    parts = (f"{set(users)} to {', '.join(map(str, to))}" for users, to in stories.items())
    return f"survivors are said to be {'; '.join(parts)}"


def lies(setup: Setup, lie: str, colluders: int = 0, report: Lied | None = None) -> Lied:
    """Try the lies of one kind with the last so many users as colluders, from none on, until one leaks.
    report: takes the counts as they come. BadInput for another kind, for a coalition of all users, and for a
    protocol that asks nobody who survived."""
    check_colluders(colluders, len(setup.users))
    if lie not in LIES:
        raise BadInput(f"lie={lie} is none of {', '.join(LIES)}")
    report, users = report or Lied(), setup.users
    for size in range(colluders + 1):
        coalition = users[len(users) - size :]
        if lied(setup, lie, coalition, report):
            break
    return report


def lied(setup: Setup, lie: str, coalition: tuple[int, ...], report: Lied) -> bool:
    """Try the lies of one kind with one coalition."""
    if lie == "keys":
        return _with_own_keys(setup, coalition, report)
    asked, users = ask(setup), setup.users
    if not asked.waiting:
        raise BadInput(f"{setup.kind.__class__.__name__}: no server asks its users who survived")
    if lie == "survivors":
        kinds = [few_alive, one_missing]
        kinds += [every_lie] if len(users) <= ALL_LIES else [two_stories] if len(users) <= TWO_STORIES else []
        return search(asked, coalition, chain(*(kind(asked, coalition) for kind in kinds)), report)
    partners = (*coalition, *users[1 : max(1, asked.setup.least - len(coalition))])
    asked = ask(setup, narrow(0, partners))
    shared = {0, *partners}
    told = f"user 0 is told that {shared} shared; "
    return search(asked, coalition, iter([spread(asked, partners, coalition)]), report, told)


def _with_own_keys(setup: Setup, coalition: tuple[int, ...], report: Lied) -> bool:
    report.tried[len(coalition)] += 1
    rows = 0

    def lie(to: int, message: Message) -> Message:
        nonlocal rows
        if isinstance(message, Roster):
            rows = max(rows, message.publics.rows)
        return own_keys(to, message)

    seen = play(setup, alter=lie).of_liar(setup.least)
    seen.drawn[SERVER] = [*seen.drawn[SERVER], *map(own_key, range(rows))]
    knowledge: Knowledge = seen.view(coalition)
    report.coalition, report.leak = coalition, beyond(seen, knowledge)
    report.told = "each user is sent keys of the server in place of all others'"
    return report.leak is not None
