"""SecAgg (Bonawitz 2017; LightSecAgg eq. 1): pairwise masks that cancel, Shamir shares for those who go.

    client   invited -> keyed -> shared -> ready -> uploaded -> answered
    server   advertise (V1) -> shares (V2) -> upload (V3) -> recovery (V4) -> done

User i uploads y_i = x_i + PRG(b_i) + sum_{j > i} PRG(a_ij) - sum_{j < i} PRG(a_ij). Of each user in V2
the server learns either b_i (it survived) or its mask key s_i (it was lost), never both.

The graph says who shares with whom: complete (SecAgg), k-regular (SecAgg+, Bell 2020), Erdos-Renyi (CCESA,
Alg. 1). A user's secrets are shared in its closed neighbourhood, t_i of which reconstruct. The server asks
nobody what it would refuse: who is left with fewer than t_i neighbours is given up. The round is aborted
once it cannot be reliable any more (CCESA Theorem 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from simfl.crypto.shamir import SHARE_BYTES, Inconsistent
from simfl.dataplane.handles import U8, Handle, HandleList
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols.channels import Channels, agreed
from simfl.protocols.graph_conditions import Evolution
from simfl.protocols.graphs import Graph
from simfl.protocols.index_views import (
    I64,
    AllBut,
    Holdings,
    Lookup,
    Others,
    Same,
    Users,
    are_distinct,
    are_within,
    closed,
    users_among,
    users_of,
)
from simfl.protocols.keyed_messages import (
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
)
from simfl.protocols.machine import (
    SERVER,
    Client,
    Effects,
    Entropy,
    GiveUp,
    Params,
    Send,
    Update,
    Verdict,
    misshapen,
    point,
)
from simfl.protocols.masked_server import MaskedServer
from simfl.protocols.server import Stage

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
        ("answered", "survivors"): ("refuse", "answered"),
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
        ops, n, t = self.ops, len(roster.users), roster.t or 0
        check_roster(roster, self.user, self.params, keys=2)
        if t < max(2, self.params.threshold(n)) or n < t:
            raise PeerFault(SERVER, f"a roster of {n} users of whom t={t} reconstruct")
        self.t = t
        mine = roster.users.place[self.user]
        others = AllBut(n, mine)
        self.peers = Others(roster.users, self.user)
        self.mask_publics = ops.pick(roster.publics, AllBut(n, mine, start=n))
        self.b = ops.secret(self.entropy("private seed"))
        seed = ops.secret(self.entropy("share coefficients"))
        shares = ops.share(ops.join([self.b, self.s]), seed, Lookup(roster.users, point), t)
        self.own = ops.pick(shares, [mine])
        self.channels.agree(self.peers, ops.pick(roster.publics, others))
        return [Send(SERVER, Shares(self.channels.seal(self.peers, ops.pick(shares, others), 0)))]

    def hold_shares(self, inbox: Inbox) -> Effects:
        """V2 is known: keep the shares, in the order of their senders and its own last; agree on the pairwise
        seeds a_ij."""
        ops = self.ops
        check_inbox(inbox, self.peers, self.t, 2 * SHARE_BYTES)
        self.partners = users_of(inbox.senders)
        self.kept, opened, refusals = self.channels.open_all(self.partners, inbox.sealed, U8)
        self.held = self.own if opened is None else ops.join([opened, self.own])
        publics = ops.pick(self.mask_publics, Lookup(self.partners, self.peers.place))
        self.seeds = agreed(ops, self.s, self.partners, publics, _mask_info(self.params))
        return refusals

    def upload(self, update: Update) -> Effects:
        x = self.params.quantise(self.ops, update, self.entropy, weighted=True)
        signs = Lookup((*self.partners, self.user), lambda j: -1 if j < self.user else 1)
        masked = self.ops.mask(x, self.ops.join([self.seeds, self.b]), signs)
        return [Send(SERVER, MaskedUpload(masked))]

    def reveal(self, survivors: Survivors) -> Effects:
        """One share per user of V2: of b_i if it survived, of s_i if it was lost. Never both."""
        check_survivors(survivors, closed(self.partners, self.user), self.user, self.t)
        alive = survivors.users
        which = Lookup(self.holders, lambda user: B if user in alive.place else S)
        missing: tuple[int, ...] = ()
        if len(self.kept) < len(self.partners):
            missing = tuple(user for user in self.partners if user not in self.kept)
        return [Send(SERVER, Answer(self.ops.parts(self.held, which, SHARE_BYTES), missing))]

    @property
    def holders(self) -> tuple[int, ...]:
        """Whose shares it holds, row by row."""
        return (*self.kept, self.user)

    def refuse(self, survivors: Survivors) -> Effects:
        """It has answered: two sets of survivors would reveal both shares of who is in one of them only."""
        raise PeerFault(SERVER, "asks for a second set of survivors")


class SecAggServer(MaskedServer):
    """Relays keys and shares, adds uploads, and takes the masks off the sum."""

    stages = {
        "advertise": Stage("advertise", "offline", "send_rosters"),
        "shares": Stage("shares", "offline", "send_inboxes"),
        "upload": Stage("upload", "upload", "ask_if_reliable"),
        "recovery": Stage("answer", "recovery", "unmask"),
    }
    keys = 2

    def __init__(self, graph: Graph, params: Params, ops: Ops) -> None:
        super().__init__(graph, params, ops)
        self.graph = graph
        self.t = {user: params.threshold(len(closed)) for user, closed in graph.items()}

    def needed(self, stage: str) -> int:
        return self.params.t

    def circle(self, user: int) -> Users:
        return self.rosters[user]

    def share_bytes(self, circle: int) -> int:
        return 2 * SHARE_BYTES

    def answer_flaw(self, user: int, content: Handle, missing: tuple[int, ...]) -> str:
        peers = self.peers[user]
        if missing and not (are_distinct(missing) and are_within(missing, peers)):
            return "malformed: misses shares that it was never sent"
        return misshapen(content, len(peers) + 1 - len(missing), SHARE_BYTES, U8)

    def send_rosters(self, got: dict[int, Advertise]) -> Effects:
        """V1 is known: each user hears of its neighbours in it, if these are enough."""
        ops = self.ops
        self.mask_publics = {user: ops.pick(m.publics, [1]) for user, m in got.items()}
        self.rosters: dict[int, Users] = {}
        made: dict[int, Roster] = {}  # the complete graph has one neighbourhood, and one roster, for all
        sends: list[Send] = []
        for user in got:
            circle, t = self.graph[user], self.t[user]
            if id(circle) not in made:
                users = users_among(circle, got)
                rows = HandleList([got[j].publics for j in users])
                keys = ops.join([ops.gather(rows, Same(half, len(rows))) for half in (0, 1)])
                made[id(circle)] = Roster(users, keys, t)
            self.rosters[user] = made[id(circle)].users
            if len(self.rosters[user]) >= t:
                sends.append(Send(user, made[id(circle)]))
        return self._go_on("shares", got, sends)

    def send_inboxes(self, got: dict[int, Shares]) -> Effects:
        """V2 is known: each user gets what its neighbours in it sealed for it, if these are enough."""
        ops = self.ops
        self.peers: dict[int, Others] = {}
        made: dict[int, tuple[Users, HandleList]] = {}
        sends: list[Send] = []
        for user in got:
            roster = self.rosters[user]
            if id(roster) not in made:
                users = users_among(roster, got)
                made[id(roster)] = users, HandleList([got[i].sealed for i in users])
            users, sealed = made[id(roster)]
            senders = self.peers[user] = Others(users, user)
            if len(users) >= self.t[user]:
                row = Lookup(senders, partial(self._row_for, user))
                sends.append(Send(user, Inbox(senders, ops.gather(sealed.without(senders.k), row))))
        return self._go_on("upload", got, sends)

    def _row_for(self, user: int, sender: int) -> int:
        """Which of a sender's sealed shares is for a user: there is none for the sender itself."""
        place = self.rosters[sender].place
        row = place[user]
        return row - (row > place[sender])

    def _go_on(self, stage: str, got: Iterable[int], messages: list[Send]) -> Effects:
        """Open the next stage for those who are sent something, and give the others up."""
        told = {message.to for message in messages}
        alone = tuple(user for user in got if user not in told)
        give_up: Effects = [GiveUp(alone, "offline")] if alone else []
        return [*give_up, *self.open_stage(stage, told), *messages]

    def ask_if_reliable(self, got: dict[int, None]) -> Effects:
        """V3 is known; V4 is part of it: without t_i neighbours in V3, no secret of user i comes back."""
        V1, V2, V3 = self.answered
        best = Evolution(self.graph, self.t, V1, V2, V3, V4=V3)
        lost = next((i for i in sorted(best.V3_plus) if not best.informative(i)), None)
        if lost is not None:
            have = len(V3.intersection(self.graph[lost]))
            return self.abort(f"upload: {have} users left with shares of user {lost}, {self.t[lost]} needed")
        return self.ask_survivors(got)

    def verdict(self, done: bool) -> Effects:
        """Theorems 1 and 2 of CCESA on the graphs G0 .. G4, as far as the round came. A round that was
        aborted was not reliable (Definition 1), also if it was forged shares that made it so."""
        V1, V2, V3, V4 = (*self.answered, *[frozenset[int]()] * (4 - len(self.answered)))
        evolution = Evolution(self.graph, self.t, V1, V2, V3, V4)
        sizes = (len(V1), len(V2), len(V3), len(V4))
        with self.ops.uncharged():  # no server asks itself whether its round was private
            return [Verdict(sizes, done and evolution.reliable, evolution.private)]

    def unmask(self, got: dict[int, Answer]) -> Effects:
        """Reconstruct b_i of who survived and s_i of who was lost, and take their masks off (eq. 1).

        With `all_masks` those between two who were lost are expanded as well, once for each: they cancel.
        """
        ops, survivors, alive = self.ops, self.survivors, set(self.survivors)
        partners: dict[int, list[int]] = {}  # of who was lost: with whom it has masks that are to be removed
        for i, peers in self.peers.items():
            if i not in alive:
                those = list(peers) if self.params.all_masks else list(filter(alive.__contains__, peers))
                partners.update({i: those} if those else {})
        holdings = Holdings([self._about(j, answer.missing) for j, answer in got.items()])
        whose = [*survivors, *partners]
        held = holdings.of(whose, [self.t[i] for i in whose])
        for i, (holders, _) in zip(whose, held, strict=True):
            if len(holders) < self.t[i]:
                return self.abort(f"recovery: {len(holders)} shares of user {i}, {self.t[i]} needed")
        try:
            secrets = ops.reconstruct([m.content for m in got.values()], held, list(map(point, got)))
        except Inconsistent as found:  # they do not fit together, or one is no share: who lied cannot be told
            return self.abort(
                f"recovery: the shares of user {whose[found.secret]} do not belong to one secret"
            )
        seeds, signs = [ops.pick(secrets, range(len(survivors)))], [-1] * len(survivors)
        for k, (i, those) in enumerate(partners.items(), start=len(survivors)):
            publics = ops.join([self.mask_publics[j] for j in those])
            seeds.append(ops.agree(ops.pick(secrets, [k]), publics, _mask_info(self.params)))
            signs += [1 if i < j else -1 for j in those]
        result = self.unmasked(lambda total: ops.mask(total, ops.join(seeds), signs))
        return [*self.verdict(done=True), *result]

    def _about(self, user: int, missing: tuple[int, ...]) -> I64:
        """Whom the rows of a user's answer are about: its peers, itself last."""
        every, k = self.peers[user].users.array, self.peers[user].k
        about = np.concatenate([every[:k], every[k + 1 :], every[k : k + 1]])
        return about[~np.isin(about, missing)] if missing else about


def _mask_info(params: Params) -> bytes:
    return b"simfl mask " + params.session
