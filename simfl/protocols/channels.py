"""Sealed channels between two users: what one sends the other passes through the server unread."""

from collections.abc import Sequence
from struct import Struct

from simfl.crypto.keys import Forged, nonce
from simfl.dataplane.handles import DType, Handle
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols.index_views import Lookup, Same, Users, UsersExcept, users_of
from simfl.protocols.machine import Effect, Effects, Params, Refuse

_TWO_WORDS = Struct(">II")


def nonces_of(senders: Sequence[int], counters: Sequence[int]) -> Lookup[bytes]:
    """Return each row's nonce, put together only where the row is really sealed or opened."""
    return Lookup(nonce, senders, counters)


def aads_of(senders: Sequence[int], receivers: Sequence[int]) -> Lookup[bytes]:
    """Return (sender, receiver) of each row: authenticated with it and not sent."""
    return Lookup(_TWO_WORDS.pack, senders, receivers)


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
        self._first: Users | UsersExcept = Users()  # of the first call of `agree`: most often the only one
        self._later: dict[int, int] = {}
        self._counters: set[int] = set()

    def agree(self, users: Sequence[int], publics: Handle) -> None:
        keys = agreed(self.ops, self._secret, users, publics, self._info)
        if self._keys is None:
            self._keys, self._first = keys, users_of(users)
            return
        start = self._keys.rows
        self._later.update(zip(users, range(start, start + len(users)), strict=True))
        self._keys = self.ops.join([self._keys, keys])

    def seal(self, to: Sequence[int], items: Handle, counter: int) -> Handle:
        """Seal row k for user to[k]; each counter serves one call. PeerFault for two users with one public
        key: with one channel key, their rows would have one nonce."""
        if counter in self._counters:
            raise ValueError(f"user {self.user}: nonce counter {counter} was used before")
        self._counters.add(counter)
        nonces = Same(nonce(self.user, counter), len(to))  # under as many keys
        aads = aads_of(Same(self.user, len(to)), to)
        try:
            return self.ops.seal(self._keys_of(to), items, nonces, aads)
        except Forged as fault:
            raise PeerFault(to[fault.row], fault.why) from None

    def open_all(
        self, senders: Sequence[int], sealed: Handle, dtype: DType
    ) -> tuple[Sequence[int], Handle | None, Effects]:
        """Open what is authentic of the rows that `senders` sealed with counter 0. Returns the senders whose
        rows were opened, these rows, and a refusal of each row that was discarded."""
        left, rows, effects = senders, sealed, list[Effect]()
        while len(left):
            try:
                return left, self.open(left, rows, Same(0, len(left)), dtype), effects
            except PeerFault as fault:
                effects.append(Refuse(fault.user, "share", fault.why))
                kept = [k for k, user in enumerate(senders) if user in left and user != fault.user]
                left, rows = Users(senders[k] for k in kept), self.ops.pick(sealed, kept)
        return left, None, effects

    def open(self, senders: Sequence[int], sealed: Handle, counters: Sequence[int], dtype: DType) -> Handle:
        """Open what `senders` sealed for this user; raises PeerFault if a row is not authentic."""
        nonces = nonces_of(senders, counters)
        aads = aads_of(senders, Same(self.user, len(senders)))
        try:
            return self.ops.open(self._keys_of(senders), sealed, nonces, aads, senders, dtype)
        except Forged as fault:
            raise PeerFault(senders[fault.row], fault.why) from None

    def knows(self, user: int) -> bool:
        return user in self._first or user in self._later

    def _keys_of(self, users: Sequence[int]) -> Handle:
        assert self._keys is not None
        return self.ops.pick(self._keys, Lookup(self._row if self._later else self._first.row, users))

    def _row(self, user: int) -> int:
        return self._later[user] if user in self._later else self._first.row(user)


def agreed(ops: Ops, secret: Handle, users: Sequence[int], publics: Handle, info: bytes) -> Handle:
    """Return a key with each of these users; raises PeerFault for one whose public key yields none."""
    try:
        return ops.agree(secret, publics, info)
    except Forged as fault:
        raise PeerFault(users[fault.row], fault.why) from None
