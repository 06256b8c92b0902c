"""SecAgg (Bonawitz 2017; LightSecAgg eq. 1): pairwise masks that cancel, Shamir shares for those who go.

    client   invited -> keyed -> shared -> ready -> uploaded -> answered
    server   advertise (V1) -> shares (V2) -> upload (V3) -> recovery (V4) -> done

User i uploads y_i = x_i + PRG(b_i) + sum_{j > i} PRG(a_ij) - sum_{j < i} PRG(a_ij). Of each user in V2
the server learns either b_i (it survived) or its mask key s_i (it was lost), never both. The graph of
neighbours is a parameter: the complete one here.
"""

from __future__ import annotations

from simfl.crypto.shamir import SHARE_BYTES, Inconsistent
from simfl.protocols.base import (
    SERVER,
    Abort,
    Client,
    Effects,
    Entropy,
    Params,
    Send,
    Stage,
    Update,
    point,
)
from simfl.protocols.graphs import Graph
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
from simfl.protocols.ops import U8, Handle, Ops, PeerFault

B, S = 0, 1
"""Which half of a row of shares: of the private seed b_i, or of the mask key s_i."""


class SecAggClient(Client):
    """A user: masks its update, and later helps to unmask the sum."""

    initial = "invited"
    table = {
        ("invited", "invite"): ("advertise", "keyed"),
        ("keyed", "roster"): ("share_keys", "shared"),
        ("shared", "inbox"): ("hold_shares", "ready"),
        ("uploaded", "survivors"): ("reveal", "answered"),
    }

    def __init__(self, user: int, params: Params, ops: Ops, entropy: Entropy) -> None:
        super().__init__(user, ops, entropy)
        self.params = params

    def advertise(self, message: Invite) -> Effects:
        ops = self.ops
        secret = ops.secret(self.entropy("channel key"))
        self.channels = Channels(self.user, secret, self.params, ops)
        self.s = ops.secret(self.entropy("mask key"))
        return [Send(SERVER, Advertise(ops.join([ops.public(secret), ops.public(self.s)])))]

    def share_keys(self, roster: Roster) -> Effects:
        ops, n = self.ops, len(roster.users)
        check_names(roster.users, self.params.points, "the roster")
        if self.user not in roster.users or n < self.params.t:
            raise PeerFault(SERVER, f"a roster of {n} users, below t={self.params.t} or without me")
        others = [k for k, user in enumerate(roster.users) if user != self.user]
        self.peers = tuple(roster.users[k] for k in others)
        self.mask_publics = ops.pick(roster.publics, [n + k for k in others])
        self.b = ops.secret(self.entropy("private seed"))
        seed = ops.secret(self.entropy("share coefficients"))
        points = [point(user) for user in roster.users]
        shares = ops.share(ops.join([self.b, self.s]), seed, points, self.params.t)
        self.own = ops.pick(shares, [roster.users.index(self.user)])
        self.channels.agree(self.peers, ops.pick(roster.publics, others))
        return [Send(SERVER, Shares(self.channels.seal(self.peers, ops.pick(shares, others), 0)))]

    def hold_shares(self, inbox: Inbox) -> Effects:
        """V2 is known: keep the shares, agree on the pairwise seeds a_ij."""
        ops = self.ops
        check_names(inbox.senders, set(self.peers), "the inbox")
        if len(inbox.senders) + 1 < self.params.t:
            raise PeerFault(SERVER, f"an inbox of {len(inbox.senders)} users, below t={self.params.t}")
        opened = self.channels.open(inbox.senders, inbox.sealed, [0] * len(inbox.senders), U8)
        self.holders = (*inbox.senders, self.user)
        self.held = ops.join([opened, self.own])
        at = {user: k for k, user in enumerate(self.peers)}
        publics = ops.pick(self.mask_publics, [at[user] for user in inbox.senders])
        self.seeds = ops.agree(self.s, publics, _mask_info(self.params))
        return []

    def upload(self, update: Update) -> Effects:
        x = self.params.quantise(self.ops, update, self.entropy, weighted=True)
        signs = [1 if self.user < j else -1 for j in self.holders[:-1]]
        masked = self.ops.mask(x, self.ops.join([self.seeds, self.b]), [*signs, 1])
        return [Send(SERVER, MaskedUpload(masked))]

    def reveal(self, survivors: Survivors) -> Effects:
        """One share per user of V2: of b_i if it survived, of s_i if it was lost. Never both."""
        check_names(survivors.users, set(self.holders), "the survivors")
        alive = set(survivors.users)
        if self.user not in alive or len(alive) < self.params.t:
            raise PeerFault(SERVER, f"{len(alive)} survivors, below t={self.params.t} or without me")
        which = [B if user in alive else S for user in self.holders]
        return [Send(SERVER, Answer(self.ops.parts(self.held, which, SHARE_BYTES)))]


class SecAggServer(MaskedServer):
    """Relays keys and shares, adds uploads, and takes the masks off the sum."""

    stages = {
        "advertise": Stage("advertise", "offline", "send_rosters"),
        "shares": Stage("shares", "offline", "send_inboxes"),
        "upload": Stage("upload", "upload", "ask_survivors"),
        "recovery": Stage("answer", "recovery", "unmask"),
    }

    def __init__(self, graph: Graph, params: Params, ops: Ops) -> None:
        super().__init__(graph, params, ops)
        self.graph = graph

    def needed(self, stage: str) -> int:
        return self.params.t

    def circle(self, user: int) -> tuple[int, ...]:
        return self.rosters[user]

    def send_rosters(self, got: dict[int, Advertise]) -> Effects:
        ops = self.ops
        self.mask_publics = {user: ops.pick(m.publics, [1]) for user, m in got.items()}
        self.rosters: dict[int, tuple[int, ...]] = {}
        made: dict[tuple[int, ...], Roster] = {}  # the complete graph has one roster for all
        effects: Effects = []
        for user in got:
            closed = self.graph[user]
            if closed not in made:
                users = tuple(j for j in closed if j in got)
                rows = [got[j].publics for j in users]
                keys = ops.join([ops.gather(rows, [half] * len(rows)) for half in (0, 1)])
                made[closed] = Roster(users, keys)
            self.rosters[user] = made[closed].users
            effects.append(Send(user, made[closed]))
        return [*self.collect("shares", got), *effects]

    def send_inboxes(self, got: dict[int, Shares]) -> Effects:
        ops = self.ops
        self.peers: dict[int, tuple[int, ...]] = {}
        row = {i: _rows(self.rosters[i], i) for i in got}
        effects: Effects = []
        for user in got:
            senders = tuple(i for i in self.rosters[user] if i in got and i != user)
            self.peers[user] = (*senders, user)
            if senders:
                sealed = ops.gather([got[i].sealed for i in senders], [row[i][user] for i in senders])
                effects.append(Send(user, Inbox(senders, sealed)))
        return [*self.collect("upload", got), *effects]

    def unmask(self, got: dict[int, Answer]) -> Effects:
        """Reconstruct b_i of who survived and s_i of who was lost, and take their masks off (eq. 1)."""
        ops, t, alive = self.ops, self.params.t, set(self.survivors)
        at = {j: {i: k for k, i in enumerate(self.peers[j])} for j in got}
        seeds: list[Handle] = []
        signs: list[int] = []
        for i, peers in self.peers.items():
            holders = sorted(j for j in peers if j in got)[:t]
            if len(holders) < t:
                return [Abort(f"recovery: {len(holders)} shares of user {i}, {t} needed")]
            rows = ops.gather([got[j].content for j in holders], [at[j][i] for j in holders])
            try:
                secret = ops.reconstruct(rows, [point(j) for j in holders])
            except Inconsistent:  # who lied cannot be told
                return [Abort(f"recovery: the shares of user {i} do not belong to one secret")]
            if i in alive:
                seeds.append(secret)
                signs.append(-1)
            else:  # the survivors' uploads still hold their masks with i
                partners = [j for j in peers if j in alive]
                publics = ops.join([self.mask_publics[j] for j in partners])
                seeds.append(ops.agree(secret, publics, _mask_info(self.params)))
                signs += [1 if i < j else -1 for j in partners]
        return self.unmasked(lambda total: ops.mask(total, ops.join(seeds), signs))


def _rows(roster: tuple[int, ...], sender: int) -> dict[int, int]:
    """Which row of a sender's sealed shares is for whom."""
    return {user: k for k, user in enumerate(u for u in roster if u != sender)}


def _mask_info(params: Params) -> bytes:
    return b"simfl mask " + params.session
