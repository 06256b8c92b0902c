"""Willow: updates under keys of their users, and these keys under a joint key of a committee.

Willow (Bell-Clark 2025, ePrint 2024/936), after its public code (google/secure-aggregation), as a round:

    0. advertise  Decryptor j of the committee draws a seed, which its secret s_j follows from, and sends a
                  channel key and b_j = e_j - a s_j, a share of the joint key.
    1. shares     It shares the seed among the decryptors, so that t + 1 of them recover it. V: all who did.
                  All users get pk = sum_(j in V) b_j.
    2. upload     User i draws a key k_i. It sends KAHE(k_i, x_i), as long as the update, and AHE(pk, k_i),
                  short and of one length for all updates. U_1: users who did, the survivors.
    3. recovery   The server adds both up. Decryptor j is sent the sum of the second parts of AHE, and answers
                  with its partial decryption, hidden by a flooding error.
    4. reveal     If some of V did not answer, the others send their shares of these seeds.
                  The server opens sum_i k_i, and by it sum_i x_i.

What the committee does is independent of d, and of the number of users. A user sends one message, and needs
no key beforehand. The joint key is drawn anew in each round, among the users of the round.

Parameters are those of the public code (`SETS`): for at most 10 million users and 100 decryptors, with 128
bits of security. Coordinates of log2(q N) bits are packed into the coefficients, as there.

Left out: the zero-knowledge proofs of users and their verifier, so the server here is honest but curious;
users who join without a committee of their own round; noise of differential privacy by decryptors. Step 4 is
described in the code's messages only (`willow/proto/willow/messages.proto`).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from simfl.crypto.keys import TAG_BYTES
from simfl.crypto.rings import KEY_VARIANCE, Ahe, Kahe, ring_of
from simfl.crypto.shamir import SHARE_BYTES
from simfl.dataplane.handles import U8, Handle
from simfl.dataplane.ops import Ops, PeerFault
from simfl.dataplane.work import RINGS
from simfl.protocols.channels import Channels
from simfl.protocols.client import Client
from simfl.protocols.committee import Committee, least_survivors
from simfl.protocols.index_views import Users, UsersExcept
from simfl.protocols.keyed_messages import (
    Answer,
    Inbox,
    Invite,
    Roster,
    Shares,
    Survivors,
    UsersMessage,
    check_inbox,
    check_names,
    check_roster,
)
from simfl.protocols.machine import (
    SERVER,
    Effects,
    Entropy,
    Member,
    Message,
    Params,
    Result,
    Send,
    Update,
    misshapen,
)
from simfl.protocols.protocol import Problems
from simfl.protocols.server import Server, Stage


class ParameterSet(NamedTuple):
    """A set of parameters, for vectors up to a length."""

    longest: int
    """Coordinates of the longest vector."""
    n: int
    """Coefficients of a KAHE element."""
    bits: tuple[int, ...]
    """Bits of the primes of KAHE's modulus."""
    t_bits: int
    """log2 of KAHE's plaintext modulus."""
    ahe_bits: tuple[int, ...]
    """Bits of the primes of AHE's modulus."""
    t: int
    """AHE's plaintext modulus."""


AHE_N = 4096
"""Coefficients of an AHE element."""
SETS = (
    ParameterSet(1_000, 4096, (26, 25, 25), 56, (27, 27, 26), 109_965),
    ParameterSet(100_000, 8192, (29,) * 4 + (28,) * 3, 168, (24,) * 4, 6_582_404_323),
    ParameterSet(10_000_000, 16384, (31,) * 4 + (30,) * 4, 224, (24,) * 4, 7_121_256_483),
)
"""The three published sets (`willow/src/shell/parameters.rs`): log2 Q of 76, 200 and 244, and of 80, 96, 96.
Their primes of up to 61 bits are products of as many bits here."""


@lru_cache(maxsize=16)
def schemes(length: int, q: int, N: int, name: bytes) -> tuple[Kahe, Ahe]:
    """Return both schemes for vectors over F_q.

    Args:
        length: Coordinates of a vector, d + 1.
        q: Size of the field.
        N: Most users of a sum.
        name: Names the public elements of a run.
    """
    chosen = next((s for s in SETS if length <= s.longest), SETS[-1])
    # A sum of N numbers below q fits, so it is exact, and then taken modulo q.
    slot_bits = ((q - 1) * N).bit_length()
    slots = max(1, chosen.t_bits // slot_bits)
    elements = math.ceil(math.ceil(length / slots) / chosen.n)
    packing = elements, slots, slot_bits, chosen.t_bits
    kahe = Kahe(ring_of(chosen.n, chosen.bits), *packing, length, q, b"kahe" + name)
    ahe = Ahe(ring_of(AHE_N, chosen.ahe_bits), math.ceil(chosen.n / AHE_N), chosen.t, kahe, b"ahe" + name)
    return kahe, ahe


def too_long(p: Params) -> Problems:
    """Yield the problem of a model that no published set of parameters is for."""
    if p.d + 1 > SETS[-1].longest:
        bound = f"below {SETS[-1].longest}, the longest vector of the published sets"
        yield "model", f"d={p.d} must be {bound}"


def _schemes(p: Params) -> tuple[Kahe, Ahe]:
    return schemes(p.d + 1, p.q, p.N, p.session)


@dataclass(frozen=True, slots=True)
class DecryptorKeys(Message):
    """A decryptor's public keys."""

    kind, phase, point = "decryptor_keys", "offline", "advertise"
    publics: Handle
    """Its channel key, 1 x 32 bytes."""
    b: Handle
    """Its share of the joint key, 1 x bytes of an element."""


@dataclass(frozen=True, slots=True)
class JointKey(Message):
    """The joint key of the decryptors, for all users."""

    kind, phase = "joint_key", "offline"
    key: Handle
    """pk, 1 x bytes of an element."""


@dataclass(frozen=True, slots=True)
class Encrypted(Message):
    """A user's one message."""

    kind, phase, point = "upload", "upload", "upload"
    update: Handle
    """KAHE(k, x), 1 x bytes."""
    key: Handle
    """AHE(pk, k): both parts, 2 x bytes."""


@dataclass(frozen=True, slots=True)
class Ciphertext(UsersMessage):
    """The request of a partial decryption: the second parts of AHE, summed over the named survivors."""

    kind, phase = "ciphertext", "recovery"
    c_a: Handle
    """1 x bytes."""


@dataclass(frozen=True, slots=True)
class Revealed(Message):
    """A decryptor's shares of the seeds of others who did not answer."""

    kind, phase, point = "revealed", "recovery", "reveal"
    shares: Handle
    """A row for each of them."""


class WillowClient(Client):
    """A user, which may be a decryptor too.

    Attributes:
        params: Public parameters.
        secret: A decryptor's seed of s_j, 1 x 32 bytes.
        peers: The other decryptors whose shares it holds.
        held: These shares, a row for each.
    """

    initial = "invited"
    table = {
        ("invited", Invite): ("advertise", "keyed"),
        ("keyed", Roster): ("share", "shared"),
        ("shared", Inbox): ("hold_shares", "holding"),
        ("holding", JointKey): ("join_round", "ready"),
        ("invited", JointKey): ("join_round", "ready"),
        ("uploaded", Ciphertext): ("open", "opened"),
        ("opened", Survivors): ("reveal", "revealed"),
        # Two partial decryptions would open two sums, which differ by one user's key.
        ("opened", Ciphertext): ("refuse", "opened"),
        ("revealed", Survivors): ("refuse", "revealed"),
    }

    def __init__(self, user: int, params: Params, ops: Ops, entropy: Entropy) -> None:
        super().__init__(user, ops, entropy)
        self.params = params
        self.kahe, self.ahe = _schemes(params)
        self.secret: Handle | None = None
        self.peers: Sequence[int] = ()

    def advertise(self, message: Invite) -> Effects:
        ops = self.ops
        key = ops.secret(self.entropy("channel key"))
        self.channels = Channels(self.user, key, self.params, ops)
        self.secret = ops.secret(self.entropy("decryption key"))
        error = ops.secret(self.entropy("error of the joint key"))
        b = ops.ahe_share_key(ops.join([self.secret, error]), self.ahe)
        return [Send(SERVER, DecryptorKeys(ops.public(key), b))]

    def share(self, roster: Roster) -> Effects:
        """Share the seed of its secret among the decryptors."""
        check_roster(roster, self.user, self.params, keys=1)
        self.peers = UsersExcept(roster.users, self.user)
        ops, places = self.ops, [k for k, user in enumerate(roster.users) if user != self.user]
        assert self.secret is not None
        self.channels.agree(self.peers, ops.pick(roster.publics, places))
        seed = ops.secret(self.entropy("shares"))
        points = [user + 1 for user in roster.users]
        rows = ops.share(self.secret, seed, points, self.params.t + 1)
        sealed = self.channels.seal(self.peers, ops.pick(rows, places), 0)
        return [Send(SERVER, Shares(sealed))]

    def hold_shares(self, inbox: Inbox) -> Effects:
        check_inbox(inbox, self.peers, self.params.U, SHARE_BYTES)
        kept, opened, refusals = self.channels.open_all(inbox.senders, inbox.sealed, U8)
        if opened is None:
            raise PeerFault(SERVER, "no share is authentic")
        self.peers, self.held = Users(kept), opened
        return refusals

    def join_round(self, message: JointKey) -> Effects:
        """Take the joint key."""
        if flaw := misshapen(message.key, 1, self.ahe.ring.element_bytes, U8):
            raise PeerFault(SERVER, flaw)
        self.joint_key = message.key
        return []

    def upload(self, update: Update) -> Effects:
        """Encrypt the update under a fresh key, and the key under the joint one."""
        ops, seeds = self.ops, []
        x = self.params.quantise(ops, update, self.entropy, weighted=True)
        for name in ("key", "errors of the update", "secret of the key", "errors of the key"):
            seeds.append(ops.secret(self.entropy(name)))
        key, *others = seeds
        encrypted = ops.kahe_encrypt(x, ops.join([key, others[0]]), self.kahe)
        randomness = ops.join([key, *others[1:]])
        sealed = ops.ahe_encrypt(self.joint_key, randomness, self.ahe)
        return [Send(SERVER, Encrypted(encrypted, sealed))]

    def open(self, message: Ciphertext) -> Effects:
        """Decrypt the sum of keys in part."""
        check_names(message.users, self.params.points, "the survivors")
        if self.secret is None or self.user not in message.users.index_of:
            raise PeerFault(SERVER, "asks for a decryption without my own upload")
        if len(message.users) < (least := least_survivors(self.params)):
            raise PeerFault(SERVER, f"{len(message.users)} survivors, below {least}")
        if flaw := misshapen(message.c_a, 1, self.ahe.part_bytes, U8):
            raise PeerFault(SERVER, flaw)
        seeds = self.ops.join([self.secret, self.ops.secret(self.entropy("flooding error"))])
        return [Send(SERVER, Answer(self.ops.ahe_open(message.c_a, seeds, self.ahe)))]

    def reveal(self, message: Survivors) -> Effects:
        """Send the shares of the decryptors that the server names as missing."""
        missing = message.users
        check_names(missing, self.peers, "the missing decryptors")
        # With the seeds of all, each single update could be opened.
        if len(missing) > (most := self.params.m - self.params.U):
            raise PeerFault(SERVER, f"{len(missing)} decryptors missing, above {most}")
        places = {user: k for k, user in enumerate(self.peers)}
        return [Send(SERVER, Revealed(self.ops.pick(self.held, [places[user] for user in missing])))]

    def refuse(self, message: Message) -> Effects:
        raise PeerFault(SERVER, f"sends a second {message.kind}")


class WillowServer(Server):
    """The server of Willow.

    Attributes:
        members: Decryptors of the round, sorted.
        roster: Those who advertised keys.
        decryptors: V, those who shared their seeds: the joint key is theirs.
        sums: The sums of uploads, as an upload; None without any.
        survivors: Users whose uploads are in them.
        opened: c_b plus the partial decryptions so far, 1 x bytes.
        missing: Decryptors whose seeds are asked for.
    """

    stages: ClassVar = {
        "advertise": Stage(DecryptorKeys, "offline", "send_roster"),
        "shares": Stage(Shares, "offline", "send_joint_key"),
        "upload": Stage(Encrypted, "upload", "ask_decryptors"),
        "recovery": Stage(Answer, "recovery", "ask_for_the_missing"),
        "reveal": Stage(Revealed, "recovery", "recover_seeds"),
    }

    def __init__(self, users: Iterable[int], committee: Iterable[int], params: Params, ops: Ops) -> None:
        super().__init__(users, ops)
        self.members, self.params = Users(sorted(committee)), params
        self.kahe, self.ahe = _schemes(params)
        self.sums: Encrypted | None = None

    def needed(self, stage: str) -> int:
        return _needed(stage, self.params)

    def enough(self) -> bool:
        # Any t + 1 shares recover a seed, so further ones are not waited for.
        return super().enough() or (self.stage == "reveal" and len(self.got) > self.params.t)

    def start(self) -> Effects:
        return [*self.open_stage("advertise", self.members), *(Send(u, Invite()) for u in self.members)]

    def reject_reason(self, sender: int, message: Any) -> str:
        key, part, share = self.ahe.ring.element_bytes, self.ahe.part_bytes, SHARE_BYTES
        if isinstance(message, DecryptorKeys):
            return misshapen(message.publics, 1, 32, U8) or misshapen(message.b, 1, key, U8)
        if isinstance(message, Shares):
            return misshapen(message.sealed, len(self.roster) - 1, share + TAG_BYTES, U8)
        if isinstance(message, Encrypted):
            flaw = misshapen(message.update, 1, self.kahe.vector_bytes, U8)
            return flaw or misshapen(message.key, 2, part, U8)
        if isinstance(message, Answer):
            return misshapen(message.content, 1, part, U8)
        return misshapen(message.shares, len(self.missing), share, U8)

    def keep(self, sender: int, message: Any) -> Any:
        """Add an upload to the sums at once."""
        if not isinstance(message, Encrypted):
            return message
        if self.sums is None:
            self.sums = message
        else:
            update = self.ops.ring_add(self.sums.update, message.update, self.kahe.ring)
            self.sums = Encrypted(update, self.ops.ring_add(self.sums.key, message.key, self.ahe.ring))
        return None

    def send_roster(self, got: dict[int, DecryptorKeys]) -> Effects:
        """Send the decryptors each other's channel keys."""
        self.keys = {user: message.b for user, message in got.items()}
        roster = Roster(Users(got), self.ops.join([message.publics for message in got.values()]))
        self.roster = roster.users
        return [*self.open_stage("shares", got), *(Send(user, roster) for user in sorted(self.expected))]

    def send_joint_key(self, got: dict[int, Shares]) -> Effects:
        """Relay the shares, and send the joint key to all users."""
        self.decryptors, ops = Users(got), self.ops
        key = reduce(lambda a, b: ops.ring_add(a, b, self.ahe.ring), (self.keys[user] for user in got))
        inboxes = [Send(user, self._inbox_of(user, got)) for user in got if user not in self.lost]
        # A decryptor that was given up is given up as a user too.
        users = [user for user in self.users if user in got or user not in self.members.index_of]
        joint = [Send(user, JointKey(key)) for user in users if user not in self.lost]
        return [*self.open_stage("upload", users), *inboxes, *joint]

    def _inbox_of(self, receiver: int, got: dict[int, Shares]) -> Inbox:
        senders = UsersExcept(self.decryptors, receiver)
        place = self.roster.index_of[receiver]
        # A decryptor seals no row for itself: behind its own place, rows are one lower than decryptors.
        rows = [place - (self.roster.index_of[user] < place) for user in senders]
        return Inbox(senders, self.ops.gather([got[user].sealed for user in senders], rows))

    def ask_decryptors(self, got: dict[int, None]) -> Effects:
        """Send the decryptors among the survivors the sum of the second parts of AHE."""
        self.ops.phase("recovery")
        self.survivors = Users(got)
        decryptors = [user for user in got if user in self.decryptors.index_of]
        assert self.sums is not None
        request = Ciphertext(self.survivors, self.ops.pick(self.sums.key, [1]))
        # Opened last, as it may close at once; the messages go out first all the same.
        return [*(Send(user, request) for user in decryptors), *self.open_stage("recovery", decryptors)]

    def ask_for_the_missing(self, got: dict[int, Answer]) -> Effects:
        """Add the partial decryptions; ask for shares of the seeds of those who sent none."""
        assert self.sums is not None
        self.opened = self.ops.pick(self.sums.key, [0])
        for answer in got.values():
            self.opened = self.ops.ring_add(self.opened, answer.content, self.ahe.ring)
        self.missing = Users(user for user in self.decryptors if user not in got)
        if not self.missing:
            return self._result()
        request = Survivors(self.missing)
        return [*(Send(user, request) for user in got), *self.open_stage("reveal", got)]

    def recover_seeds(self, got: dict[int, Revealed]) -> Effects:
        """Decrypt instead of the missing decryptors."""
        ops, first = self.ops, dict(islice(got.items(), self.params.t + 1))
        users = np.arange(len(first))
        held = [(users, np.full(len(first), k)) for k in range(len(self.missing))]
        points = [user + 1 for user in first]
        seeds = ops.reconstruct([message.shares for message in first.values()], held, points)
        assert self.sums is not None
        c_a = ops.pick(self.sums.key, [1])
        for k in range(len(self.missing)):
            part = ops.ahe_open(c_a, ops.pick(seeds, [k]), self.ahe)
            self.opened = ops.ring_add(self.opened, part, self.ahe.ring)
        return self._result()

    def _result(self) -> Effects:
        assert self.sums is not None
        key = self.ops.ahe_combine(self.opened, self.ahe)
        total = self.ops.kahe_decrypt(self.sums.update, key, self.kahe)
        mean = self.ops.dequantise(total, self.params.levels, None)
        return [Result(total, mean, tuple(map(Member, self.survivors)))]


def _needed(stage: str, p: Params) -> int:
    if stage == "upload":
        return least_survivors(p)
    # Seeds need t + 1 shares; before, U decryptors, so that all seeds can be recovered later.
    return p.t + 1 if stage == "reveal" else p.U


class Willow(Committee):
    """Keys of updates under a joint key of a committee (Bell-Clark 2025)."""

    points, member_points = (*Committee.points, "reveal"), (*Committee.member_points, "reveal")
    timers = ("advertise", "shares", "upload", "recovery", "reveal")
    model_with = (JointKey, JointKey)

    special_work = (*RINGS, "noise_element")

    protocol: Literal["willow"] = "willow"

    def needed(self, stage: str, p: Params) -> int:
        return _needed(stage, p)

    def params(self, p: Params) -> Params:
        # A decryptor that is waited for saves the others an exchange.
        return replace(super().params(p), all_answers=True)

    def problems(self, p: Params) -> Problems:
        yield from super().problems(p)
        _, ahe = schemes(p.d + 1, p.q, p.N, b"")
        yield from too_long(p)
        # Eight deviations of a sum of keys: exceeded by one of 16,384 coefficients in 2^-35 rounds.
        most = int((ahe.t / 2 / 8) ** 2 / KEY_VARIANCE)
        if most < p.N:
            yield "clients", f"N={p.N} must be at most {most}, whose keys' sum fits the plaintext of AHE"

    def shares_bytes(self, p: Params, users: int) -> int:
        kahe, ahe = schemes(p.d + 1, p.q, p.N, b"")
        m = self.params(p).m
        # Uploads on their way, and a seed's shares, sealed and opened.
        return 2 * p.N * (kahe.vector_bytes + 2 * ahe.part_bytes) + 2 * m * m * (SHARE_BYTES + TAG_BYTES)

    def pairs(self, p: Params, users: int, members: int) -> float:
        return float(self.params(p).m ** 2)

    def client(self, user: int, p: Params, ops: Ops, entropy: Entropy) -> WillowClient:
        return WillowClient(user, p, ops, entropy)

    def server(self, users: Sequence[int], p: Params, ops: Ops, entropy: Entropy) -> WillowServer:
        return WillowServer(users, self.members_of(users, p, entropy), p, ops)
