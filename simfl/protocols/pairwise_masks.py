"""SecAgg (Bonawitz 2017; LightSecAgg eq. 1): pairwise masks that cancel, Shamir shares for those who go.

    client   invited -> keyed -> shared -> ready -> uploaded -> answered
    server   advertise (V1) -> shares (V2) -> upload (V3) -> recovery (V4) -> done

User i uploads y_i = x_i + PRG(b_i) + sum_{j > i} PRG(a_ij) - sum_{j < i} PRG(a_ij). Of each user in V2
the server learns either b_i (it survived) or its mask key s_i (it was lost), never both.

The graph says who shares with whom: complete (SecAgg), k-regular (SecAgg+, Bell 2020), Erdos-Renyi (CCESA,
Alg. 1). A user's secrets are shared in its closed neighbourhood, t_i of which reconstruct. The round is
aborted once it cannot be reliable any more (CCESA Theorem 1).
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from simfl.crypto.shamir import SHARE_BYTES, Inconsistent
from simfl.dataplane.handles import U8, Handle, HandleList
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols.channels import agreed
from simfl.protocols.graphs import Evolution, Graph
from simfl.protocols.index_views import I64, AllBut, Lookup, Users, are_distinct, are_within, first_share_rows
from simfl.protocols.keyed_messages import Advertise, Answer, Inbox, Roster, Survivors
from simfl.protocols.machine import SERVER, Effects, Params, Send, Verdict, misshapen, point
from simfl.protocols.masked_round import MaskedClient, MaskedServer
from simfl.protocols.protocol import STAGES

B, S = 0, 1
"""The halves of a row of shares: of the private seed b_i, and of the mask key s_i."""


class SecAggClient(MaskedClient):
    keys, dtype, share_bytes = 2, U8, 2 * SHARE_BYTES

    def make_keys(self) -> list[Handle]:
        self.s = self.ops.secret(self.entropy("mask key"))
        return [*super().make_keys(), self.ops.public(self.s)]

    def threshold(self, roster: Roster) -> int:
        n, t = len(roster.users), roster.t or 0
        if t < max(2, self.params.threshold(n)) or n < t:
            raise PeerFault(SERVER, f"a roster of {n} users of whom t={t} reconstruct")
        return t

    def share_secrets(self, roster: Roster) -> Handle:
        ops, n = self.ops, len(roster.users)
        self.mask_publics = ops.pick(roster.publics, AllBut(n, roster.users.index_of[self.user], start=n))
        self.b = ops.secret(self.entropy("private seed"))
        seed = ops.secret(self.entropy("share coefficients"))
        return ops.share(ops.join([self.b, self.s]), seed, Lookup(point, roster.users), self.t)

    def hold_shares(self, inbox: Inbox) -> Effects:
        """V2 is known: keep its shares, agree on the pairwise seeds a_ij, and expand all of the mask.

        This is offline (LightSecAgg Table 5), so it may overlap with training: the upload is one addition.
        """
        ops, refusals = self.ops, super().hold_shares(inbox)
        publics = ops.pick(self.mask_publics, Lookup(self.peers.row, self.partners))
        seeds = agreed(ops, self.s, self.partners, publics, _mask_info(self.params))
        signs = Lookup(lambda j: -1 if j < self.user else 1, self.partners)
        self.z = ops.mask(ops.prg(self.b, self.params.d + 1), seeds, signs)
        return refusals

    def answer(self, survivors: Survivors) -> Effects:
        """Reveal one share for each user of V2: of b_i if it survived, of s_i if it was lost. Never both."""
        alive = self.check(survivors).index_of
        halves = Lookup(lambda user: B if user in alive else S, self.held_share_owners)
        missing: tuple[int, ...] = ()
        if len(self.kept) < len(self.partners):
            missing = tuple(user for user in self.partners if user not in self.kept)
        return [Send(SERVER, Answer(self.ops.parts(self.held_shares, halves, SHARE_BYTES), missing))]


class SecAggServer(MaskedServer):
    keys, share_bytes = 2, 2 * SHARE_BYTES

    def __init__(self, graph: Graph, params: Params, ops: Ops) -> None:
        t = {user: params.threshold(len(circle)) for user, circle in graph.items()}
        super().__init__(graph, t, params, ops)
        self.graph = graph
        self.partners: dict[int, list[int]] = {}  # lost user -> those with whom it has masks to be removed
        self.short: list[int] = []  # users of whom shares may be missing: one of each circle
        self.late: set[int] = set()  # whose answers came when they were not waited for any more
        self.judged: Verdict | None = None
        self.may_leak = False  # if answers come late
        self.lacking: Counter[int] = Counter()  # user -> answers without a share of it

    def needed(self, stage: str) -> int:
        return self.params.t

    def answer_flaw(self, user: int, content: Handle, missing: tuple[int, ...]) -> str:
        peers = self.peers[user]
        if missing and not (are_distinct(missing) and are_within(missing, peers)):
            return "malformed: misses shares that it was never sent"
        return misshapen(content, len(peers) + 1 - len(missing), SHARE_BYTES, U8)

    def roster(self, users: Users, t: int, publics: HandleList) -> Roster:
        return replace(super().roster(users, t, publics), t=t)

    def send_rosters(self, got: dict[int, Advertise]) -> Effects:
        self.mask_publics = {user: self.ops.pick(m.publics, [1]) for user, m in got.items()}
        return super().send_rosters(got)

    def ask_survivors(self, got: dict[int, None]) -> Effects:
        """V3 is known; V4 is part of it: without t_i neighbours in V3, no secret of user i comes back."""
        V1, V2, V3 = self.answered
        best = Evolution(self.graph, self.t, V1, V2, V3, V4=V3)
        lost = next((i for i in sorted(best.V3_plus) if not best.informative(i)), None)
        if lost is not None:
            have = len(V3.intersection(self.graph[lost]))
            return self.abort(f"upload: {have} users left with shares of user {lost}, {self.t[lost]} needed")
        for i, peers in self.peers.items():
            if i not in V3:
                others = list(peers) if self.params.all_masks else list(filter(V3.__contains__, peers))
                self.partners.update({i: others} if others else {})
        self.short = list({id(self.peers[i].base): i for i in (*got, *self.partners)}.values())
        return super().ask_survivors(got)

    def keep(self, sender: int, message: Any) -> Any:
        if isinstance(message, Answer) and message.missing:
            self.lacking.update(message.missing)
            self.short += message.missing
        return super().keep(sender, message)

    def recoverable(self) -> bool:
        """Return True if t_i shares of every secret that is asked for are there."""
        # Answers only add up: who is found to have enough shares is not looked at again. So a round takes a
        # step for each edge of its graph, and one for each answer where all share one list.
        if len(self.got) < self.params.t:
            return False
        while self.short:
            i = self.short[-1]
            if len(self.got.keys() & self.peers[i].base.index_of.keys()) - self.lacking[i] < self.t[i]:
                return False
            self.short.pop()
        return True

    def receive(self, sender: int, message: Any) -> Effects:
        """Take a message. An answer that is not waited for any more brings its shares all the same: if they
        change the verdict, it is given again."""
        effects = super().receive(sender, message)
        if isinstance(message, Answer) and sender in self.survivors.index_of and sender not in self.got:
            self.late.add(sender)
            if self.judged is not None and self.may_leak and not self.private():
                self.judged, self.may_leak = replace(self.judged, private=False), False
                return [*effects, self.judged]
        return effects

    def evolution(self) -> Evolution:
        """Return the graphs G0 .. G4, as far as the round came."""
        came = dict(zip(self.stages, self.answered, strict=False))
        return Evolution(self.graph, self.t, *(came.get(stage, frozenset()) for stage in STAGES))

    def private(self) -> bool:
        """Return True if the round is private so far (Theorem 2): late answers tell the server as much."""
        with self.ops.uncharged():  # no server asks itself whether its round was private
            e = self.evolution()
            return replace(e, V4=e.V4 | self.late).private

    def verdict(self, done: bool) -> Effects:
        """Theorems 1 and 2 of CCESA on the graphs G0 .. G4, as far as the round came. A round that was
        aborted was not reliable (Definition 1), also if it was forged shares that made it so."""
        private = self.private()
        with self.ops.uncharged():
            e = self.evolution()
            sizes = (len(e.V1), len(e.V2), len(e.V3), len(e.V4))
            self.judged = Verdict(sizes, done and e.reliable, private)
            # All secrets that matter are there in a reliable round: what comes late adds nothing.
            self.may_leak = private and not e.reliable and not replace(e, V4=e.V3).private
        return [self.judged]

    def abort(self, reason: str) -> Effects:
        return [*self.verdict(done=False), *super().abort(reason)]

    def unmask(self, got: dict[int, Answer]) -> Effects:
        """Reconstruct b_i of each survivor and s_i of each lost user, and take their masks off (eq. 1).

        With `all_masks` those between two lost users are expanded as well, once for each: they cancel.
        """
        ops, survivors, partners = self.ops, self.survivors, self.partners
        assert self.sum is not None
        owners = [*survivors, *partners]
        rows_of = [self._owners(j, answer.missing) for j, answer in got.items()]
        held = first_share_rows(rows_of, owners, [self.t[i] for i in owners])
        for i, (holders, _) in zip(owners, held, strict=True):
            if len(holders) < self.t[i]:
                return self.abort(f"recovery: {len(holders)} shares of user {i}, {self.t[i]} needed")
        try:
            secrets = ops.reconstruct([m.content for m in got.values()], held, list(map(point, got)))
        except Inconsistent as found:  # they do not fit together, or one is no share: who lied cannot be told
            owner = owners[found.secret]
            return self.abort(f"recovery: the shares of user {owner} do not belong to one secret")
        seeds, signs = [ops.pick(secrets, range(len(survivors)))], [-1] * len(survivors)
        for k, (i, others) in enumerate(partners.items(), start=len(survivors)):
            publics = ops.join([self.mask_publics[j] for j in others])
            seeds.append(ops.agree(ops.pick(secrets, [k]), publics, _mask_info(self.params)))
            signs += [1 if i < j else -1 for j in others]
        result = self.unmasked(ops.mask(self.sum, ops.join(seeds), signs))
        return [*self.verdict(done=True), *result]

    def _owners(self, user: int, missing: tuple[int, ...]) -> I64:
        """Return the users whose shares are the rows of a user's answer: its peers, itself last."""
        every, k = self.peers[user].base.array, self.peers[user].k
        owners = np.concatenate([every[:k], every[k + 1 :], every[k : k + 1]])
        return owners[~np.isin(owners, missing)] if missing else owners


def _mask_info(params: Params) -> bytes:
    return b"simfl mask " + params.session
