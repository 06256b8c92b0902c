"""LightSecAgg (Alg. 1): each user's mask is MDS-coded among all, the sum of masks recovered in one shot.

    client   invited -> keyed -> shared -> ready -> uploaded -> answered
    server   advertise -> shares -> upload (U_1) -> recovery (any U of U_1) -> done

User i uploads x_i + z_i; user j answers with the sum of its coded shares [z~_i]_j over the survivors; any
U answers decode to the sum of the survivors' masks (eqs. 5-6). Any T coded shares say nothing of z_i.
"""

from __future__ import annotations

from simfl.protocols.base import (
    SERVER,
    Client,
    Effects,
    Entropy,
    Params,
    Send,
    Stage,
    Update,
    point,
)
from simfl.protocols.keying import (
    Advertise,
    Answer,
    Channels,
    Inbox,
    Invite,
    MaskedServer,
    MaskedUpload,
    Roster,
    Shares,
    Survivors,
    check_names,
)
from simfl.protocols.ops import U32, Ops, PeerFault


class LightSecAggClient(Client):
    """A user: codes its mask among all, masks its update, and sums the shares that it is asked for."""

    initial = "invited"
    table = {
        ("invited", "invite"): ("advertise", "keyed"),
        ("keyed", "roster"): ("share_mask", "shared"),
        ("shared", "inbox"): ("hold_shares", "ready"),
        ("uploaded", "survivors"): ("sum_shares", "answered"),
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
        check_names(roster.users, self.params.points, "the roster")
        if self.user not in roster.users or len(roster.users) < p.U:
            raise PeerFault(SERVER, f"a roster of {len(roster.users)} users, below U={p.U} or without me")
        others = [k for k, user in enumerate(roster.users) if user != self.user]
        self.peers = tuple(roster.users[k] for k in others)
        self.channels.agree(self.peers, ops.pick(roster.publics, others))
        self.z = ops.prg(ops.secret(self.entropy("mask")), p.d + 1)
        noise = ops.secret(self.entropy("noise"))
        coded = ops.encode(self.z, noise, [point(user) for user in roster.users], p.U, p.T)
        self.own = ops.pick(coded, [roster.users.index(self.user)])
        return [Send(SERVER, Shares(self.channels.seal(self.peers, ops.pick(coded, others), 0)))]

    def hold_shares(self, inbox: Inbox) -> Effects:
        check_names(inbox.senders, set(self.peers), "the inbox")
        if len(inbox.senders) + 1 < self.params.U:
            raise PeerFault(SERVER, f"an inbox of {len(inbox.senders)} users, below U={self.params.U}")
        opened = self.channels.open(inbox.senders, inbox.sealed, [0] * len(inbox.senders), U32)
        self.held = self.ops.join([opened, self.own])
        self.row = {user: k for k, user in enumerate((*inbox.senders, self.user))}
        return []

    def upload(self, update: Update) -> Effects:
        x = self.params.quantise(self.ops, update, self.entropy, weighted=True)
        return [Send(SERVER, MaskedUpload(self.ops.add(x, self.z)))]

    def sum_shares(self, survivors: Survivors) -> Effects:
        """Answer for the survivors' masks: once, since the state moves on, and never for too few."""
        check_names(survivors.users, self.row, "the survivors")
        if len(survivors.users) < self.params.U or self.user not in survivors.users:
            raise PeerFault(SERVER, f"{len(survivors.users)} survivors, below U={self.params.U}")
        rows = self.ops.pick(self.held, [self.row[user] for user in survivors.users])
        return [Send(SERVER, Answer(self.ops.total(rows)))]


class LightSecAggServer(MaskedServer):
    """Relays coded shares, adds uploads, and subtracts the decoded sum of masks."""

    stages = {
        "advertise": Stage("advertise", "offline", "send_roster"),
        "shares": Stage("shares", "offline", "send_inboxes"),
        "upload": Stage("upload", "upload", "ask_survivors"),
        "recovery": Stage("answer", "recovery", "decode"),
    }

    def needed(self, stage: str) -> int:
        return self.params.U

    def circle(self, user: int) -> tuple[int, ...]:
        return self.roster

    def enough(self) -> bool:
        if self.stage == "recovery":  # one shot: any U answers decode
            return len(self.got) == min(self.params.U, len(self.expected))
        return super().enough()

    def send_roster(self, got: dict[int, Advertise]) -> Effects:
        self.roster = tuple(got)
        publics = self.ops.join([m.publics for m in got.values()])
        message = Roster(self.roster, publics)
        return [*self.collect("shares", got), *(Send(user, message) for user in got)]

    def send_inboxes(self, got: dict[int, Shares]) -> Effects:
        """Pass each user's sealed shares on; row k of a sender is for the k-th other of the roster."""
        place = {user: k for k, user in enumerate(self.roster)}
        effects: Effects = []
        for user in got:
            senders = tuple(i for i in got if i != user)
            rows = [place[user] - (place[user] > place[i]) for i in senders]
            sealed = self.ops.gather([got[i].sealed for i in senders], rows)
            effects.append(Send(user, Inbox(senders, sealed)))
        return [*self.collect("upload", got), *effects]

    def decode(self, got: dict[int, Answer]) -> Effects:
        ops, p = self.ops, self.params
        rows = ops.join([m.content for m in got.values()])
        masks = ops.decode(rows, [point(user) for user in got], p.U, p.T, p.d + 1)
        return self.unmasked(lambda total: ops.sub(total, masks))
