"""The rounds of decryptors: a setup that outlives rounds, then rounds in which each user speaks once.

    Setup, in the first round and every `setup_every` rounds:
    S0. advertise  User i sends a long-term public key. In later rounds only a newcomer does.
    S1. shares     Each of m decryptors, drawn from the public seed v, deals a secret among them, sealed.

    A round:
    1. upload       User i is sent v, the round's users, the keys of its neighbours and of the decryptors,
                    and what these set up. It sends its masked update, and sealed what removes the mask.
    2. consistency  Decryptor j is sent the survivors, and signs the set (cross-check).
    3. recovery     Decryptor j is sent the signatures. If U decryptors signed its own set, it opens what
                    removes the masks of this set. U answers recover the sum.

A decryptor is a user with one more part. It can be lost at each of these points, and helps in rounds that it
is selected for, where its own upload arrived. `Params.memory` holds what parties keep between rounds; users
may come and go between them. The setup's messages count to the offline phase of the round that begins with
it, and to no other: a run's rows show its cost apart, and its mean over rounds is the amortised cost.

Invariant: a decryptor answers for one set of survivors in a round, and never for fewer than N - D of them.

Left out: a beacon for v, which the server draws here; users' signatures of their reports; proofs of dealers;
and the transfer of shares from one committee to the next. The server here is honest but curious. Signing keys
are in a directory before the run.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import ClassVar

from simfl.crypto.keys import TAG_BYTES
from simfl.crypto.signatures import SIGNATURE_BYTES
from simfl.dataplane.handles import U8, Handle
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols import graphs
from simfl.protocols.channels import Channels
from simfl.protocols.client import Client
from simfl.protocols.committee import least_survivors
from simfl.protocols.consistency import signed_bytes
from simfl.protocols.index_views import AllBut, Same, Users, UsersExcept
from simfl.protocols.keyed_messages import (
    Advertise,
    Invite,
    Roster,
    Signature,
    Survivors,
    UsersMessage,
    check_names,
    check_roster,
)
from simfl.protocols.machine import (
    SERVER,
    Effects,
    Entropy,
    Ignore,
    Message,
    Number,
    Params,
    Reason,
    Refusal,
    Refuse,
    Send,
    Update,
    misshapen,
)


@dataclass(frozen=True, slots=True)
class Deal(Message):
    """A decryptor's part of the setup."""

    kind, phase, point = "deal", "offline", "shares"
    public: Handle
    """Public part, 1 x 32 bytes."""
    sealed: Handle
    """A sealed row for each other decryptor, in the order of the roster."""


@dataclass(frozen=True, slots=True)
class Task(UsersMessage):
    """The users of a round, and what the receiver needs to mask for the decryptors."""

    kind, phase = "task", "offline"
    publics: Handle
    """Public keys of the receiver's neighbours, a row each."""
    members: Sequence[int]
    """Decryptors."""
    member_publics: Handle
    """Their public keys, a row each."""
    key: Handle
    """Public result of the setup, 1 x 32 bytes."""
    seed: tuple[Number, ...]
    """The public seed of the setup, 8 words."""
    deals: Handle | None = None
    """After a setup, the rows that other decryptors sealed for the receiver."""


@dataclass(frozen=True, slots=True)
class Report(Message):
    """A user's one message of a round."""

    kind, phase, point = "upload", "upload", "upload"
    masked: Handle
    """1 x (d + 1) over F_q."""
    sealed: Handle
    """A sealed row for each other decryptor."""
    pads: Handle
    """A ciphertext under the decryptors' key for each neighbour."""


@dataclass(frozen=True, slots=True)
class Openings(UsersMessage):
    """The decryptors who signed the survivors, and what the receiver is to open for that set."""

    kind, phase = "openings", "recovery"
    signed: Handle
    """A signature of each signer, [signers x 64] bytes."""
    publics: Handle
    """Public key of each survivor but the receiver."""
    sealed: Handle
    """The row of each survivor but the receiver."""
    halves: Handle | None
    """First half of the ciphertext of each pair of a survivor and a lost neighbour; None without any."""


@dataclass(frozen=True, slots=True)
class Opened(Message):
    """A decryptor's part of the recovery."""

    kind, phase, point = "answer", "recovery", "recovery"
    rows: Handle
    """The opened row of each survivor, its own last."""
    parts: Handle | None
    """Its part of the decryption of each half; None without any."""


def public_seed(what: str, words: Sequence[int], round: int) -> bytes:
    """Return 32 bytes that follow from a run's public seed: for a committee, or a round's graph."""
    return blake2b(f"simfl {what} {round} {list(words)}".encode(), digest_size=32).digest()


@lru_cache(maxsize=4)
def graph_of(users: Users, p: float, seed: bytes) -> graphs.Graph:
    """Return the graph of a round, which each party computes from the public seed alone."""
    return graphs.erdos_renyi(users, p, seed)


@lru_cache(maxsize=4)
def lost_pairs(users: Users, survivors: Users, p: float, seed: bytes) -> tuple[tuple[int, int], ...]:
    """Return (survivor, lost neighbour) of each mask that is left in the sum, by survivor."""
    graph = graph_of(users, p, seed)
    return tuple((j, i) for j in survivors for i in graph[j] if i not in survivors.index_of)


@lru_cache(maxsize=4)
def connected(users: Users, survivors: Users, p: float, seed: bytes) -> bool:
    """Return True if the survivors are one component: the masks of each component cancel in its own sum."""
    graph, left = graph_of(users, p, seed), set(survivors)
    reached = [left.pop()]
    while reached:
        new = left.intersection(graph[reached.pop()])
        left -= new
        reached += new
    return not left


class DecryptorClient(Client):
    """A user, which may be a decryptor too.

    Attributes:
        memory: What it keeps between rounds: its long-term key, its channels, a decryptor's share.
        users: Users of the round.
        neighbours: Users with whom it masks.
        members: The decryptors; `helpers`, those without itself.
    """

    initial = "invited"
    table = {
        ("invited", Invite): ("advertise", "keyed"),
        ("keyed", Roster): ("deal", "dealt"),
        ("invited", Task): ("join_round", "ready"),
        ("keyed", Task): ("join_round", "ready"),
        ("dealt", Task): ("join_round", "ready"),
        ("uploaded", Survivors): ("sign", "signed"),
        ("signed", Openings): ("open", "answered"),
        # Two sets of survivors would reveal the mask of a user that is in one of them only.
        ("signed", Survivors): ("refuse", "signed"),
        ("answered", Openings): ("refuse", "answered"),
    }
    row_bytes: ClassVar[int]
    """Bytes of a user's row for a decryptor before it is sealed."""
    own_row: Handle | None = None
    """A decryptor's row of its own mask."""

    def __init__(self, user: int, params: Params, ops: Ops, entropy: Entropy) -> None:
        super().__init__(user, ops, entropy)
        assert params.memory is not None
        self.params, self.memory = params, params.memory.of(user)

    @abstractmethod
    def deal_rows(self, members: Users) -> tuple[Handle, Handle]:
        """Return the public part of its secret, and a row of it for each decryptor."""

    @abstractmethod
    def add_deals(self, rows: Handle) -> Handle:
        """Return its share of the decryptors' key from the rows that all of them dealt to it."""

    @abstractmethod
    def protect(self, x: Handle) -> tuple[Handle, Handle, Handle]:
        """Return the masked update, a row for each decryptor, and a ciphertext for each neighbour."""

    def advertise(self, message: Invite) -> Effects:
        # A second key of a user begins a new memory: its old channels and shares are of an earlier setup.
        self.memory.clear()
        secret = self.ops.secret(self.entropy("long-term key"))
        channels = Channels(self.user, secret, self.params, self.ops)
        self.memory.update(secret=secret, channels=channels)
        return [Send(SERVER, Advertise(self.ops.public(secret)))]

    def deal(self, roster: Roster) -> Effects:
        """Deal a secret among the decryptors."""
        check_roster(roster, self.user, self.params, keys=1)
        self._check_members(len(roster.users))
        index = roster.users.index_of[self.user]
        others, places = UsersExcept(roster.users, self.user), AllBut(len(roster.users), index)
        self._agree(others, self.ops.pick(roster.publics, places))
        public, rows = self.deal_rows(roster.users)
        self.own_deal = self.ops.pick(rows, [index])
        # Two counters a round: of a setup's rows, and of a report's.
        sealed = self._channels.seal(others, self.ops.pick(rows, places), 2 * self.params.round)
        return [Send(SERVER, Deal(public, sealed))]

    def join_round(self, task: Task) -> Effects:
        p, users = self.params, task.users
        check_names(users, p.points, "the round")
        check_names(task.members, p.points, "the decryptors")
        if self.user not in users.index_of or "secret" not in self.memory:
            raise PeerFault(SERVER, "a round without me, or without my key")
        self._check_members(len(task.members))
        self.users, self.members, self.key = users, Users(task.members), task.key
        # Computed here: a server could choose neighbours that collude.
        self.seed = public_seed("graph", task.seed, p.round)
        circle = graph_of(users, p.p, self.seed)[self.user]
        if len(circle) < 2:
            raise PeerFault(SERVER, "a round in which I have no neighbour")
        self.neighbours, self.publics = UsersExcept(circle, self.user), task.publics
        for handle, n in (
            (task.publics, len(circle) - 1),
            (task.member_publics, len(self.members)),
            (task.key, 1),
        ):
            if flaw := misshapen(handle, n, 32, U8):
                raise PeerFault(SERVER, flaw)
        others = [k for k, member in enumerate(self.members) if member != self.user]
        self.helpers = Users(self.members[k] for k in others)
        self._agree(self.helpers, self.ops.pick(task.member_publics, others))
        if task.deals is not None:
            return self._hold_deals(task.deals)
        return []

    def _hold_deals(self, deals: Handle) -> Effects:
        """Open the rows that decryptors dealt to it; without all of them it has no share."""
        kept, rows, refusals = self._channels.open_all(self.helpers, deals, U8, 2 * self.params.round)
        if len(kept) == len(self.helpers):
            self.memory["share"] = self.add_deals(self.ops.join([*([rows] if rows else []), self.own_deal]))
        return refusals

    def _agree(self, members: Sequence[int], publics: Handle) -> None:
        """Derive a channel key with each decryptor that it has none with."""
        new = [k for k, member in enumerate(members) if not self._channels.knows(member)]
        if new:
            self._channels.agree([members[k] for k in new], self.ops.pick(publics, new))

    @property
    def _channels(self) -> Channels:
        channels: Channels = self.memory["channels"]
        return channels

    def _check_members(self, members: int) -> None:
        if not self.params.U <= members <= self.params.m:
            raise PeerFault(SERVER, f"{members} decryptors, instead of {self.params.U} to {self.params.m}")

    def upload(self, update: Update) -> Effects:
        x, ops = self.params.quantise(self.ops, update, self.entropy, weighted=True), self.ops
        masked, rows, pads = self.protect(x)
        places = [k for k, member in enumerate(self.members) if member != self.user]
        if len(places) < len(self.members):
            self.own_row = ops.pick(rows, [self.members.index_of[self.user]])
        try:
            sealed = self._channels.seal(self.helpers, ops.pick(rows, places), 2 * self.params.round + 1)
        except PeerFault as fault:
            # The task's fault, found only here, where no message of the table is taken.
            self.state = "refused"
            return [Refuse(fault.user, Task.kind, fault.why)]
        return [Send(SERVER, Report(masked, sealed, pads))]

    def sign(self, survivors: Survivors) -> Effects:
        """Sign the survivors (cross-check)."""
        users, p = survivors.users, self.params
        check_names(users, self.users, "the survivors")
        if self.own_row is None or self.user not in users.index_of:
            raise PeerFault(SERVER, "asks for a sum without my own upload")
        if len(users) < (least := least_survivors(p)):
            raise PeerFault(SERVER, f"{len(users)} survivors, below {least}")
        if not connected(self.users, users, p.p, self.seed):
            raise PeerFault(SERVER, "survivors whose graph is not connected: a part of the sum would be open")
        assert p.pki is not None
        self.survivors, self.statement = users, signed_bytes("survivors", p, users.digest)
        return [
            Send(SERVER, Signature(self.ops.sign(self.ops.secret(p.pki.secret(self.user)), self.statement)))
        ]

    def open(self, openings: Openings) -> Effects:
        """Open what removes the masks of the survivors, if U decryptors signed this set."""
        signers, ops, p = openings.users, self.ops, self.params
        check_names(signers, self.members, "the signers")
        if len(signers) < p.U:
            raise PeerFault(SERVER, f"{Refusal.FEW}: {len(signers)}, {p.U} needed")
        others, pairs = (
            UsersExcept(self.survivors, self.user),
            len(lost_pairs(self.users, self.survivors, p.p, self.seed)),
        )
        flaw = misshapen(openings.signed, len(signers), SIGNATURE_BYTES, U8)
        flaw = flaw or misshapen(openings.publics, len(others), 32, U8)
        flaw = flaw or misshapen(openings.sealed, len(others), self.row_bytes + TAG_BYTES, U8)
        if flaw or (openings.halves is not None) is not (pairs > 0):
            raise PeerFault(SERVER, flaw or f"ciphertexts of other pairs than {pairs}")
        if openings.halves is not None and (flaw := misshapen(openings.halves, pairs, 32, U8)):
            raise PeerFault(SERVER, flaw)
        assert p.pki is not None
        try:
            keys = p.pki.publics(signers, ops)
            ops.verify(keys, openings.signed, Same(self.statement, len(signers)), signers)
        except PeerFault as fault:
            raise PeerFault(SERVER, f"{Refusal.FORGED}: that of user {fault.user}") from None
        self._agree(others, openings.publics)
        kept, rows, refusals = self._channels.open_all(others, openings.sealed, U8, 2 * p.round + 1)
        own = self.own_row
        if rows is None or own is None or len(kept) < len(others) or "share" not in self.memory:
            return [*refusals, Ignore(SERVER, openings.kind, Reason.NO_SHARE)]
        parts = None if openings.halves is None else ops.decrypt_share(self.memory["share"], openings.halves)
        return [Send(SERVER, Opened(ops.join([rows, own]), parts))]

    def refuse(self, message: Message) -> Effects:
        raise PeerFault(SERVER, "asks for a second set of survivors")
