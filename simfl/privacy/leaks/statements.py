"""A server that states other numbers and names: a threshold, too few users, one twice, a second set.

Whatever a protocol's messages state besides vectors is altered here, field by field, for all users alike. A
user refuses it, or what it then sends tells no more than one sum over as many users as the protocol needs.
Sets that differ from user to user are the lies of `lies.py`: against those a protocol promises less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from simfl.dataplane.handles import Handle
from simfl.privacy.leaks.laws import learned
from simfl.privacy.leaks.views import Setup, handles, play, values
from simfl.protocols.index_views import Users
from simfl.protocols.machine import SERVER, Message, Update

Say = Callable[[int, Any], Any]
"""(user, what a field of a message to it holds) -> what it is told there instead."""


@dataclass(frozen=True)
class Statement:
    """A false statement in a field of the server's messages."""

    kind: str
    """Kind of message."""
    field: str
    words: str
    """The statement, in words."""
    say: Say
    after: bool = False
    """It follows the true message, and does not replace it."""

    def __str__(self) -> str:
        return f"{self.words} as {self.field} of {self.kind}"

    def alter(self, to: int, message: Message) -> Message | Sequence[Message]:
        if message.kind != self.kind:
            return message
        other = replace(message, **{self.field: self.say(to, getattr(message, self.field))})
        return (message, other) if self.after else other


@dataclass
class Stated:
    """The false statements of a protocol's server, and their effect."""

    tried: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of statements, by kind of message and field."""
    worked: list[str] = field(default_factory=list)
    """Statements that reveal more than one sum, in words."""


def statements(setup: Setup, colluders: int) -> Stated:
    """State something else in each field of each message of the server, and look at what so many colluders
    learn."""
    report, honest = Stated(), play(setup)
    seen_fields = dict[tuple[str, str], Any]()
    for sent in honest.sent:
        if sent.sender == SERVER:
            for name, _ in values(sent.message):
                seen_fields.setdefault((sent.message.kind, name), (sent.message, name))
    for at, (message, name) in seen_fields.items():
        for statement in _statements(message, name, setup.users, setup.least):
            report.tried[at] += 1
            seen = play(setup, alter=statement.alter).of_liar(setup.least)
            found = next(learned(seen, colluders), None)
            if found is not None:
                report.worked.append(f"told {statement}, {found}")
    return report


def _statements(message: Message, name: str, users: Sequence[int], least: int) -> Iterator[Statement]:
    value = getattr(message, name)
    if isinstance(value, int) and not isinstance(value, bool):
        for other in range(len(users) + 1):
            if other != value:
                yield Statement(message.kind, name, str(other), partial(_number, other))
    elif _names_users(message, value, users):
        for size in range(1, least):
            yield Statement(message.kind, name, f"{size} of the users", _first(size))
        yield Statement(message.kind, name, "all but its reader", lambda to, true: _without(true, to))
        yield Statement(message.kind, name, "one user twice", _doubled)
        for size in range(least, len(users)):
            words = f"{size} of the users, a second time,"
            yield Statement(message.kind, name, words, _first(size), after=True)


def _number(number: int, to: int, value: int) -> int:
    return number


def _names_users(message: Message, value: Any, users: Sequence[int]) -> bool:
    """Return True for a list of users beside which there are no rows, one for each."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not len(value):
        return False
    return not any(handles(message)) and all(isinstance(user, int) and user in users for user in value)


def _without(value: Sequence[int], user: int) -> Any:
    return _like(value, [one for one in value if one != user])


def _doubled(to: int, value: Sequence[int]) -> Any:
    """Name one other user twice, and so one fewer."""
    others = [one for one in value if one != to]
    return _like(value, [to, *others[:-1], *others[:1]])


def _first(size: int) -> Say:
    """Name so many users, the reader among them."""
    return lambda to, value: _like(value, sorted([to, *(one for one in value if one != to)][:size]))


def _like(value: Sequence[int], users: Sequence[int]) -> Any:
    return Users(users) if isinstance(value, Users) else type(value)(users)  # type: ignore[call-arg]


class _Heavier(Setup):
    """The same users with other weights."""

    def update(self, user: int, update: Hashable) -> Update:
        return replace(super().update(user, update), weight=2 * user + 7)


def stated_weights(setup: Setup) -> Iterator[str]:
    """Yield the fields of users' messages, vectors aside, that are others where only users' weights are."""
    one = play(setup)
    other = play(_Heavier(setup.kind, setup.params, setup.users, setup.root))
    for sent, again in zip(one.sent, other.sent, strict=False):
        for name, value in values(sent.message) if sent.sender != SERVER else ():
            if not isinstance(value, Handle) and value != getattr(again.message, name, value):
                yield f"{name} of {sent.message.kind} says in the clear what its user weighs"
