"""What the secure protocols share: the first steps of a round, and channels between users.

The server invites; users advertise public keys; from then on what one user tells another passes through
the server, sealed under a key that only the two can derive (LightSecAgg footnote 3).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, ClassVar

from simfl.crypto import mds
from simfl.crypto.keys import Forged, nonce
from simfl.dataplane.handles import U8, U32, Handle
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols.index_views import (
    Lookup,
    Others,
    Same,
    Users,
    View,
    are_distinct,
    are_within,
    place,
    place_in,
    users_among,
    users_of,
)
from simfl.protocols.machine import (
    INT_BYTES,
    SERVER,
    Effect,
    Effects,
    Member,
    Message,
    Params,
    Refuse,
    Result,
    Send,
    misshapen,
)
from simfl.protocols.server import Server

_TWO_WORDS = Struct(">II")
TAG_BYTES, KEY_BYTES = 16, 32
"""What AES-GCM adds to an item, and the key that two users agree on."""


@dataclass(frozen=True, slots=True)
class Invite(Message):
    """The server asks a user to advertise its keys."""

    kind = "invite"
    phase = "offline"

    @property
    def size_bytes(self) -> int:
        return INT_BYTES


@dataclass(frozen=True, slots=True)
class Advertise(Message):
    """A user's public keys, one row each."""

    kind = "advertise"
    phase = "offline"
    point = "advertise"
    publics: Handle

    @property
    def size_bytes(self) -> int:
        return self.publics.size_bytes


@dataclass(frozen=True, slots=True)
class Roster(Message):
    """The public keys of the users that the receiver is to share with; itself is among them.

    t: how many of them are to reconstruct its secrets, t_i, where that is the receiver's own.
    """

    kind = "roster"
    phase = "offline"
    users: Users
    publics: Handle
    t: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.users, Users):
            object.__setattr__(self, "users", Users(self.users))

    @property
    def size_bytes(self) -> int:
        return INT_BYTES * (len(self.users) + (self.t is not None)) + self.publics.size_bytes


@dataclass(frozen=True, slots=True)
class Shares(Message):
    """A user's sealed shares: row k is for the k-th user of its roster."""

    kind = "shares"
    phase = "offline"
    relayed = True
    point = "shares"
    sealed: Handle

    @property
    def size_bytes(self) -> int:
        return self.sealed.size_bytes


@dataclass(frozen=True, slots=True)
class Inbox(Message):
    """The sealed shares that `senders` have for the receiver."""

    kind = "inbox"
    phase = "offline"
    relayed = True
    senders: Sequence[int]
    sealed: Handle

    @property
    def size_bytes(self) -> int:
        return INT_BYTES * len(self.senders) + self.sealed.size_bytes


@dataclass(frozen=True, slots=True)
class Survivors(Message):
    """The users whose uploads the server has."""

    kind = "survivors"
    phase = "recovery"
    users: Users

    def __post_init__(self) -> None:
        if not isinstance(self.users, Users):
            object.__setattr__(self, "users", Users(self.users))

    @property
    def size_bytes(self) -> int:
        return INT_BYTES * len(self.users)


@dataclass(frozen=True, slots=True)
class MaskedUpload(Message):
    """A masked vector over F_q."""

    kind = "upload"
    phase = "upload"
    point = "upload"
    masked: Handle

    @property
    def size_bytes(self) -> int:
        return self.masked.size_bytes


@dataclass(frozen=True, slots=True)
class Answer(Message):
    """What a survivor reveals: a sum of coded shares, or one Shamir share per user it shared with.

    missing: whose shares it had to discard.
    """

    kind = "answer"
    phase = "recovery"
    point = "recovery"
    content: Handle
    missing: tuple[int, ...] = ()

    @property
    def size_bytes(self) -> int:
        return self.content.size_bytes + INT_BYTES * len(self.missing)


class Pairs(View[bytes]):
    """Two numbers a row as bytes, put together only where a row is really sealed or opened."""

    def __init__(
        self, first: Sequence[int], second: Sequence[int], together: Callable[[int, int], bytes]
    ) -> None:
        self.first, self.second, self.together = first, second, together

    def __len__(self) -> int:
        return len(self.first)

    def at(self, k: int) -> bytes:
        return self.together(self.first[k], self.second[k])

    def __iter__(self) -> Iterator[bytes]:
        return map(self.together, self.first, self.second)


def nonces_of(senders: Sequence[int], counters: Sequence[int]) -> Pairs:
    """The nonce of each row."""
    return Pairs(senders, counters, nonce)


def aads_of(senders: Sequence[int], receivers: Sequence[int]) -> Pairs:
    """(sender, receiver) of each row: authenticated with it and not sent."""
    return Pairs(senders, receivers, _TWO_WORDS.pack)


class Channels:
    """Sealed channels between one user and its peers; a nonce is (sender, counter), never used twice.

    Both directions of a pair share a key, so the sender is part of the nonce, and sender and receiver
    are authenticated with every item: a server cannot pass one user's share off as another's.
    """

    def __init__(self, user: int, secret: Handle, params: Params, ops: Ops) -> None:
        self.user = user
        self.ops = ops
        self._secret = secret
        self._info = b"simfl channel " + params.session
        self._keys: Handle | None = None
        self._first: Users | Others = Users()
        self._later: dict[int, int] = {}
        self._counters: set[int] = set()

    def agree(self, users: Sequence[int], publics: Handle) -> None:
        """Derive the keys shared with these peers."""
        keys = agreed(self.ops, self._secret, users, publics, self._info)
        if self._keys is None:
            self._keys, self._first = keys, users_of(users)
            return
        start = self._keys.n
        self._later.update(zip(users, range(start, start + len(users)), strict=True))
        self._keys = self.ops.join([self._keys, keys])

    def seal(self, to: Sequence[int], items: Handle, counter: int) -> Handle:
        """Seal row k for user to[k]; each counter serves one call."""
        if counter in self._counters:
            raise ValueError(f"user {self.user}: nonce counter {counter} was used before")
        self._counters.add(counter)
        mine = Same(self.user, len(to))
        return self.ops.seal(self._of(to), items, nonces_of(mine, Same(counter, len(to))), aads_of(mine, to))

    def open_all(
        self, senders: Sequence[int], sealed: Handle, width: int
    ) -> tuple[Sequence[int], Handle | None, Effects]:
        """Open what is authentic of the rows that `senders` sealed with counter 0.

        Returns:
            the senders whose rows were opened, these rows, and a refusal of each row that was discarded.
        """
        whose, rows, effects = senders, sealed, list[Effect]()
        while len(whose):
            try:
                return whose, self.open(whose, rows, Same(0, len(whose)), width), effects
            except PeerFault as fault:
                effects.append(Refuse(fault.user, "share", fault.why))
                kept = [k for k, user in enumerate(senders) if user in whose and user != fault.user]
                whose, rows = Users(senders[k] for k in kept), self.ops.pick(sealed, kept)
        return whose, None, effects

    def open(self, senders: Sequence[int], sealed: Handle, counters: Sequence[int], width: int) -> Handle:
        """Open what `senders` sealed for this user; raises PeerFault if a row is not authentic."""
        nonces = nonces_of(senders, counters)
        aads = aads_of(senders, Same(self.user, len(senders)))
        try:
            return self.ops.open(self._of(senders), sealed, nonces, aads, senders, width)
        except Forged as fault:
            raise PeerFault(senders[fault.row], fault.why) from None

    def knows(self, user: int) -> bool:
        """Whether a key is shared with this user."""
        return user in self._first or user in self._later

    def _of(self, users: Sequence[int]) -> Handle:
        assert self._keys is not None
        find = self._row if self._later else place_in(self._first)
        return self.ops.pick(self._keys, Lookup(users, find))

    def _row(self, user: int) -> int:
        return self._later[user] if user in self._later else place(self._first, user)


class MaskedServer(Server):
    """The part of a masking protocol's server that all have: keys first, uploads folded as they come."""

    def __init__(self, users: Iterable[int], params: Params, ops: Ops) -> None:
        super().__init__(users, ops)
        self.params = params
        if self.needed("recovery") < 2:
            raise ValueError("a sum over one user is that user's update: at least 2 must be needed")
        self.sum: Handle | None = None
        self.survivors: tuple[int, ...] = ()

    def start(self) -> Effects:
        return [*self.open_stage("advertise", self.users), *(Send(u, Invite()) for u in self.users)]

    def reject_reason(self, sender: int, message: Any) -> str:
        p = self.params
        match message:
            case Advertise(publics):
                return misshapen(publics, self.keys, 32, U8)
            case Shares(sealed):
                circle = len(self.circle(sender))
                return misshapen(sealed, circle - 1, self.share_bytes(circle) + TAG_BYTES, U8)
            case MaskedUpload(masked):
                return misshapen(masked, 1, p.d + 1, U32)
            case Answer(content, missing):
                return self.answer_flaw(sender, content, missing)
        return "not what its kind says"

    def keep(self, sender: int, message: Any) -> Any:
        if not isinstance(message, MaskedUpload):
            return message
        self.sum = message.masked if self.sum is None else self.ops.add(self.sum, message.masked)
        return None  # folded: an upload is never kept

    def ask_survivors(self, got: dict[int, None]) -> Effects:
        """Tell the survivors who they are; their answers are what recovery needs."""
        self.ops.phase("recovery")
        self.survivors = tuple(got)
        made: dict[int, Survivors] = {}
        effects: Effects = []
        for user in got:
            circle = self.circle(user)
            if id(circle) not in made:
                made[id(circle)] = Survivors(users_among(circle, got))
            effects.append(Send(user, made[id(circle)]))
        return [*self.open_stage("recovery", got), *effects]

    keys: ClassVar[int]
    """Public keys that a user advertises."""

    @abstractmethod
    def circle(self, user: int) -> Users:
        """The users, itself included, whom a user was told of: it must hear of no others."""

    @abstractmethod
    def share_bytes(self, circle: int) -> int:
        """Length of one share, before it is sealed, in a circle of so many users."""

    @abstractmethod
    def answer_flaw(self, user: int, content: Handle, missing: tuple[int, ...]) -> str:
        """What is wrong with an answer, or nothing."""

    def unmasked(self, masks_off: Callable[[Handle], Handle]) -> Effects:
        """The result: the folded sum with its masks taken off, and the mean update."""
        assert self.sum is not None
        total = masks_off(self.sum)
        mean = self.ops.dequantise(total, self.params.levels, None)
        return [Result(total, mean, tuple(map(Member, self.survivors)))]


def agreed(ops: Ops, secret: Handle, users: Sequence[int], publics: Handle, info: bytes) -> Handle:
    """A key with each of these users; raises PeerFault for one whose public key yields none."""
    try:
        return ops.agree(secret, publics, info)
    except Forged as fault:
        raise PeerFault(users[fault.row], fault.why) from None


def coded_bytes(params: Params, length: int) -> int:
    """Length of one user's coded share of a vector of so many elements (LightSecAgg eq. 5)."""
    return U32 * mds.share_length(length, params.U, params.T)


def check_names(users: Sequence[int], known: Container[int], what: str) -> None:
    """Refuse a list from the server that names strangers or someone twice."""
    if not are_distinct(users):
        raise PeerFault(SERVER, f"{what} names a user twice")
    if not are_within(users, known):
        stranger = next(user for user in users if user not in known)
        raise PeerFault(SERVER, f"{what} names stranger {stranger}")


def check_roster(roster: Roster, user: int | None, params: Params, keys: int) -> None:
    """Refuse a roster that names strangers, doubles or not `user`, or has not `keys` keys of each."""
    check_names(roster.users, params.points, "the roster")
    if user is not None and user not in roster.users.place:
        raise PeerFault(SERVER, f"a roster of {len(roster.users)} users without me")
    _refuse(misshapen(roster.publics, keys * len(roster.users), 32, U8))


def check_inbox(inbox: Inbox, peers: Container[int], least: int, share_bytes: int) -> None:
    """Refuse an inbox that names strangers or doubles, or from whose shares `least` users cannot recover."""
    check_names(inbox.senders, peers, "the inbox")
    if len(inbox.senders) + 1 < least:
        raise PeerFault(SERVER, f"an inbox of {len(inbox.senders)} users, below {least} with me")
    _refuse(misshapen(inbox.sealed, len(inbox.senders), share_bytes + TAG_BYTES, U8))


def check_survivors(survivors: Survivors, circle: Container[int], user: int, least: int) -> None:
    """Refuse survivors that are strangers, doubled, fewer than `least`, or without the receiver."""
    check_names(survivors.users, circle, "the survivors")
    if user not in survivors.users.place or len(survivors.users) < least:
        raise PeerFault(SERVER, f"{len(survivors.users)} survivors, below {least} or without me")


def _refuse(flaw: str) -> None:
    if flaw:
        raise PeerFault(SERVER, flaw)
