"""Machines with one fault of privacy each: what a view must show."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

from simfl.dataplane.ops import Ops
from simfl.protocols.channels import Channels
from simfl.protocols.keyed_messages import Advertise, Answer
from simfl.protocols.lightsecagg import LightSecAggClient, LightSecAggServer
from simfl.protocols.machine import SERVER, Send
from simfl.protocols.pairwise_masks import SecAggClient, SecAggServer


# --- they keep the invariants of sums, ends and honesty under every loss --------------------------------
class OneKeyForAll(SecAggClient):
    """The mask key is the channel key too: revealing it opens what was sealed."""

    def advertise(self, message: Any) -> Any:
        ops = self.ops
        self.s = ops.secret(self.entropy("mask key"))
        self.channels = Channels(self.user, self.s, self.params, ops)
        return [Send(SERVER, Advertise(ops.join([ops.public(self.s), ops.public(self.s)])))]


class FlatPolynomial(SecAggClient):
    """Shares with t - 1: one colluder fewer is enough."""

    def share_secrets(self, roster: Any) -> Any:
        share = self.ops.share
        self.ops.share = lambda secrets, seed, points, t: share(secrets, seed, points, t - 1)
        try:
            return super().share_secrets(roster)
        finally:
            del self.ops.share


class MaskIsNoise(LightSecAggClient):
    """Mask and noise from one seed."""

    def share_secrets(self, roster: Any) -> Any:
        entropy, once = self.entropy, self.entropy("mask")
        self.entropy = lambda name: once
        try:
            return super().share_secrets(roster)
        finally:
            self.entropy = entropy


class NoNoise(LightSecAggClient):
    """Codes the mask without any noise row."""

    def share_secrets(self, roster: Any) -> Any:
        encode = self.ops.encode
        self.ops.encode = lambda z, seed, points, U, T: encode(z, seed, points, U - T, 0)
        try:
            return super().share_secrets(roster)
        finally:
            del self.ops.encode


# --- others ---------------------------------------------------------------------------------------
class NoPrivateSeed(SecAggClient):
    """Pairwise masks only (Bonawitz's first attempt): a late upload of who was taken for lost is bare."""

    def hold_shares(self, inbox: Any) -> Any:
        effects = super().hold_shares(inbox)
        self.z = self.ops.sub(self.z, self.ops.prg(self.b, self.params.d + 1))
        return effects


class BothKinds(SecAggClient):
    """Answers with the mask key's share of each user, and of survivors with the private seed's too."""

    def answer(self, survivors: Any) -> Any:
        (send,) = super().answer(survivors)
        both = self.ops.join(
            [send.message.content, self.ops.parts(self.held_shares, [1] * len(self.held_share_owners), 36)]
        )
        return [replace(send, message=Answer(both, send.message.missing))]


class TakesMoreShares(SecAggServer):
    """Takes what BothKinds sends, and gives up."""

    def answer_flaw(self, user: int, content: Any, missing: Any) -> str:
        return ""

    def unmask(self, got: Any) -> Any:
        return self.abort("enough seen")


class AnswersOneByOne(LightSecAggClient):
    """Answers with its share of each survivor instead of their sum."""

    def answer(self, survivors: Any) -> Any:
        (send,) = super().answer(survivors)
        return [replace(send, message=Answer(self.held_shares))]


class NonceTwice(LightSecAggClient):
    """Seals another vector under the nonces of the first."""

    def share(self, roster: Any) -> Any:
        (send,) = super().share(roster)
        self.channels._counters.clear()
        seed = self.ops.secret(self.entropy("more noise"))
        again = self.ops.encode(self.z, seed, range(1, 1 + len(roster.users)), self.params.U, self.params.T)
        second = self.channels.seal(self.peers, self.ops.pick(again, range(len(self.peers))), 0)
        return [
            replace(send, message=replace(send.message, sealed=self.ops.join([send.message.sealed, second])))
        ]


class TakesMore(LightSecAggServer):
    """Takes what NonceTwice and AnswersOneByOne send."""

    def reject_reason(self, sender: int, message: Any) -> str:
        return "" if message.kind in ("shares", "answer") else super().reject_reason(sender, message)

    def unmask(self, got: Any) -> Any:
        return self.abort("enough seen")


class PublicSeed(LightSecAggClient):
    """The mask comes from a hash of what everybody knows."""

    def share_secrets(self, roster: Any) -> Any:
        entropy = self.entropy
        public = sha256(b"mask of user %d" % self.user).digest()
        self.entropy = lambda name: public if name == "mask" else entropy(name)
        try:
            return super().share_secrets(roster)
        finally:
            self.entropy = entropy


class SeedForMaskAndRounding(LightSecAggClient):
    """Rounds by the stream that masks: two purposes of one seed, which no sum shows."""

    def upload(self, update: Any) -> Any:
        self.entropy = lambda name: self.seed
        return super().upload(update)

    def share_secrets(self, roster: Any) -> Any:
        entropy = self.entropy

        def keeping(name: str) -> bytes:
            drawn = entropy(name)
            if name == "mask":
                self.seed = drawn
            return drawn

        self.entropy = keeping
        try:
            return super().share_secrets(roster)
        finally:
            self.entropy = entropy


class Remembered(LightSecAggClient):
    """Sets its masks up once, as MicroSecAgg does: round r has r + 1 times the mask of the first."""

    masks: dict[int, tuple[bytes, int]] = {}

    def share_secrets(self, roster: Any) -> Any:
        fresh = self.entropy("mask")
        seed, rounds = self.masks.get(self.user, (fresh, 0))
        self.masks[self.user] = seed, rounds + 1
        ops, p = self.ops, self.params
        once = ops.prg(ops.secret(seed), p.d + 1)
        self.z = ops.weighted_sum([once], [rounds + 1])
        noise = ops.secret(self.entropy("noise"))
        points = [user + 1 for user in roster.users]
        return ops.encode(self.z, noise, points, p.U, p.T)


def reuses(machine: type[Any], *names: str) -> type[Any]:
    """Return a client that draws these secrets once for all rounds."""
    drawn: dict[tuple[int, str], bytes] = {}

    class Reuses(machine):
        def __init__(self, user: int, params: Any, ops: Ops, entropy: Any) -> None:
            def once(name: str) -> bytes:
                fresh = entropy(name)
                return drawn.setdefault((user, name), fresh) if name in names else fresh

            super().__init__(user, params, ops, once)

    return Reuses


def plant(kind: Any, client: type[Any], server: type[Any] | None = None) -> Any:
    """A protocol's block with a faulty client, and perhaps a server that does not mind."""

    class Faulty(type(kind)):
        def client(self, user: int, p: Any, ops: Ops, entropy: Any) -> Any:
            return client(user, p, ops, entropy)

        def server(self, users: Any, p: Any, ops: Ops, entropy: Any) -> Any:
            if server is None:
                return super().server(users, p, ops, entropy)
            if issubclass(server, SecAggServer):
                return server(self.graph(users, p, entropy), p, ops, entropy)
            return server(users, p, ops, entropy)

    return Faulty.model_construct(**dict(kind))
