"""LightSecAgg (Alg. 1): each user's mask is MDS-coded among all, the sum of masks recovered in one shot.

    client   invited -> keyed -> shared -> ready -> uploaded -> answered
    server   advertise -> shares -> upload (U_1) -> recovery (any U of U_1) -> done

User i uploads x_i + z_i; user j answers with the sum of its coded shares [z~_i]_j over the survivors; any
U answers decode to the sum of the survivors' masks (eqs. 5-6). Any T coded shares say nothing of z_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from simfl.crypto import mds
from simfl.dataplane.handles import U32, Handle, HandleList
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols.channels import Channels
from simfl.protocols.index_views import AllBut, Lookup, Others, Users, closed, rows_of
from simfl.protocols.keyed_messages import (
    KEY_BYTES,
    TAG_BYTES,
    Advertise,
    Answer,
    Inbox,
    Invite,
    MaskedUpload,
    Roster,
    Shares,
    Survivors,
    check_inbox,
    check_roster,
    check_survivors,
    coded_bytes,
)
from simfl.protocols.machine import (
    SERVER,
    Client,
    Effects,
    Entropy,
    Ignore,
    Params,
    Reason,
    Send,
    Update,
    misshapen,
)
from simfl.protocols.masked_server import MaskedServer
from simfl.protocols.protocol import KEYED, STAGES, Problems, Protocol
from simfl.protocols.server import Stage


class LightSecAggClient(Client):
    """A user: codes its mask among all, masks its update, and sums the shares that it is asked for."""

    initial = "invited"
    table = {
        ("invited", "invite"): ("advertise", "keyed"),
        ("keyed", "roster"): ("share_mask", "shared"),
        ("shared", "inbox"): ("hold_shares", "ready"),
        ("uploaded", "survivors"): ("sum_shares", "answered"),
        ("answered", "survivors"): ("refuse", "answered"),
    }

    def __init__(self, user: int, params: Params, ops: Ops, entropy: Entropy) -> None:
        super().__init__(user, ops, entropy)
        self.params = params

    def advertise(self, message: Invite) -> Effects:
        secret = self.ops.secret(self.entropy("channel key"))
        self.channels = Channels(self.user, secret, self.params, self.ops)
        return [Send(SERVER, Advertise(self.ops.public(secret)))]

    def share_mask(self, roster: Roster) -> Effects:
        """Encode the mask z_i and seal one coded share for each user (eq. 5)."""
        ops, p = self.ops, self.params
        check_roster(roster, self.user, p, keys=1)
        if len(roster.users) < p.U:
            raise PeerFault(SERVER, f"a roster of {len(roster.users)} users, below U={p.U}")
        n, mine = len(roster.users), roster.users.place[self.user]
        others = AllBut(n, mine)
        self.peers = Others(roster.users, self.user)
        self.channels.agree(self.peers, ops.pick(roster.publics, others))
        self.z = ops.prg(ops.secret(self.entropy("mask")), p.d + 1)
        noise = ops.secret(self.entropy("noise"))
        points = Lookup(roster.users, partial(mds.point_of, q=p.q))
        coded = ops.encode(self.z, noise, points, p.U, p.T)
        self.own = ops.pick(coded, [mine])
        return [Send(SERVER, Shares(self.channels.seal(self.peers, ops.pick(coded, others), 0)))]

    def hold_shares(self, inbox: Inbox) -> Effects:
        """Keep the shares: in the order of their senders, and its own last."""
        p = self.params
        check_inbox(inbox, self.peers, p.U, coded_bytes(p, p.d + 1))
        self.kept, opened, refusals = self.channels.open_all(inbox.senders, inbox.sealed, U32)
        self.circle = closed(inbox.senders, self.user)
        self.complete = len(self.kept) == len(inbox.senders)
        self.held = self.own if opened is None else self.ops.join([opened, self.own])
        return refusals

    def upload(self, update: Update) -> Effects:
        x = self.params.quantise(self.ops, update, self.entropy, weighted=True)
        return [Send(SERVER, MaskedUpload(self.ops.add(x, self.z)))]

    def sum_shares(self, survivors: Survivors) -> Effects:
        """Answer for the survivors' masks: once, since the state moves on, and never for too few."""
        check_survivors(survivors, self.circle, self.user, self.params.U)
        if not self.complete:
            missing = next((u for u in survivors.users if u != self.user and u not in self.kept), None)
            if missing is not None:
                return [Ignore(SERVER, "survivors", Reason.NO_SHARE, detail=f"user {missing}")]
        row = rows_of(self.kept, self.user)
        return [Send(SERVER, Answer(self.ops.total(self.ops.pick(self.held, Lookup(survivors.users, row)))))]

    @property
    def holders(self) -> tuple[int, ...]:
        """Whose shares it holds, row by row."""
        return (*self.kept, self.user)

    def refuse(self, survivors: Survivors) -> Effects:
        """It has answered: the difference of two sums would be coded shares of who is in one of them only."""
        raise PeerFault(SERVER, "asks for a second set of survivors")


class LightSecAggServer(MaskedServer):
    """Relays coded shares, adds uploads, and subtracts the decoded sum of masks."""

    stages = {
        "advertise": Stage("advertise", "offline", "send_roster"),
        "shares": Stage("shares", "offline", "send_inboxes"),
        "upload": Stage("upload", "upload", "ask_survivors"),
        "recovery": Stage("answer", "recovery", "decode"),
    }
    keys = 1

    def needed(self, stage: str) -> int:
        return self.params.U

    def circle(self, user: int) -> Users:
        return self.roster

    def share_bytes(self, circle: int) -> int:
        return coded_bytes(self.params, self.params.d + 1)

    def answer_flaw(self, user: int, content: Handle, missing: tuple[int, ...]) -> str:
        if missing:  # then it has no sum to answer with
            return "malformed: a sum that misses shares"
        return misshapen(content, 1, coded_bytes(self.params, self.params.d + 1) // U32, U32)

    def enough(self) -> bool:
        if self.stage == "recovery":  # one shot: any U answers decode
            return len(self.got) == min(self.params.U, len(self.expected))
        return super().enough()

    def send_roster(self, got: dict[int, Advertise]) -> Effects:
        self.roster = Users(got)
        publics = self.ops.join([m.publics for m in got.values()])
        message = Roster(self.roster, publics)
        return [*self.open_stage("shares", got), *(Send(user, message) for user in got)]

    def send_inboxes(self, got: dict[int, Shares]) -> Effects:
        """Pass each user's sealed shares on; row k of a sender is for the k-th other of the roster.

        Both are in ascending order: a user stands one place further up among the others of those below it.
        """
        place, users = self.roster.place, Users(got)
        sealed = HandleList([message.sealed for message in got.values()])
        sends: Effects = []
        for k, user in enumerate(users):
            row = (place[user] - 1, place[user])  # of a sender below this user, and of one above it
            at = Lookup(range(len(users) - 1), partial(_either, row, k))
            sends.append(Send(user, Inbox(Others(users, user), self.ops.gather(sealed.without(k), at))))
        return [*self.open_stage("upload", got), *sends]

    def decode(self, got: dict[int, Answer]) -> Effects:
        ops, p = self.ops, self.params
        rows = ops.join([m.content for m in got.values()])
        masks = ops.decode(rows, mds.points_of(tuple(got), p.q), p.U, p.T, p.d + 1)
        return self.unmasked(lambda total: ops.sub(total, masks))


def _either(row: tuple[int, int], k: int, i: int) -> int:
    return row[i >= k]


class Coded(Protocol):
    """Protocols whose masks are coded: N - D >= U > T (Theorem 1)."""

    def needed(self, stage: str, p: Params) -> int:
        return p.U

    def problems(self, p: Params) -> Problems:
        """N - D >= U > T, and U >= 2, which T = 0 leaves open."""
        left = p.N - p.D
        shown = f"U = N - D = {p.N} - {p.D} = {p.U}" if not p.U_given else f"U={p.U}"
        if left < p.U:
            yield "privacy.U", f"{shown} must not be above N - D = {p.N} - {p.D} = {left}"
        if p.U <= p.T:
            yield "privacy.T", f"T={p.T} must be below {shown}"
        elif p.U < 2:
            yield "privacy.U", f"{shown} must be at least 2: a sum over one user is that user's update"

    def shares_bytes(self, p: Params, users: int) -> int:
        """Each coded share sealed, opened and once more."""
        share = U32 * mds.share_length(p.d + 1, p.U, p.T)
        return users**2 * (3 * (share + TAG_BYTES) + 2 * KEY_BYTES)


class LightSecAgg(Coded):
    """One-shot recovery of the aggregate mask (LightSecAgg Alg. 1)."""

    source = "LightSecAgg Alg. 1"
    points, timers, model_with = KEYED, STAGES, ("invite", "inbox")
    streams = True
    member_bytes = 13_000

    protocol: Literal["lightsecagg"] = "lightsecagg"

    def client(self, user: int, p: Params, ops: Ops, entropy: Entropy) -> LightSecAggClient:
        return LightSecAggClient(user, p, ops, entropy)

    def server(self, users: Sequence[int], p: Params, ops: Ops, entropy: Entropy) -> LightSecAggServer:
        return LightSecAggServer(users, p, ops)

    def pairs(self, p: Params, users: int, members: int) -> float:
        return 0.0
