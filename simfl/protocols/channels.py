"""Sealed channels between two users: whatever one tells the other passes through the server unread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct

from simfl.crypto.keys import Forged, nonce
from simfl.dataplane.handles import Handle
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols.index_views import (
    Lookup,
    Others,
    Same,
    Users,
    View,
    place,
    place_in,
    users_of,
)
from simfl.protocols.machine import (
    Effect,
    Effects,
    Params,
    Refuse,
)

_TWO_WORDS = Struct(">II")


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
        start = self._keys.rows
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


def agreed(ops: Ops, secret: Handle, users: Sequence[int], publics: Handle, info: bytes) -> Handle:
    """A key with each of these users; raises PeerFault for one whose public key yields none."""
    try:
        return ops.agree(secret, publics, info)
    except Forged as fault:
        raise PeerFault(users[fault.row], fault.why) from None
