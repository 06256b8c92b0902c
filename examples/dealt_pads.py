"""Dealt pads: a sum under one-time pads that a trusted server deals.

    client   invited -> ready -> uploaded
    server   upload --all, or the deadline--> done

The server deals each user the seed of a pad; a user uploads its update plus the pad; the server takes the
survivors' pads off the sum. It is an example and not protection: who listens to the pads reads the updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simfl.config.blocks import Natural
from simfl.dataplane.handles import U8, U32, Handle
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols.client import Client
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
from simfl.protocols.protocol import Problems, Protocol
from simfl.protocols.server import Server, Stage


@dataclass(frozen=True, slots=True)
class Pad(Message):
    """The seed of a user's pad."""

    kind = "pad"
    phase = "offline"
    seed: Handle


@dataclass(frozen=True, slots=True)
class PaddedUpload(Message):
    """x_i + z_i. Its point is where a scenario can lose the user that sends it."""

    kind = "upload"
    phase = "upload"
    point = "upload"
    padded: Handle


class PadsClient(Client):
    """A user: ready to upload once it has its pad."""

    initial = "invited"
    table = {("invited", Pad): ("keep", "ready")}

    def __init__(self, user: int, params: Params, ops: Ops, entropy: Entropy) -> None:
        super().__init__(user, ops, entropy)
        self.params = params

    def keep(self, pad: Pad) -> Effects:
        if flaw := misshapen(pad.seed, 1, 32, U8):
            raise PeerFault(SERVER, flaw)
        self.seed = pad.seed
        return []

    def upload(self, update: Update) -> Effects:
        x = self.params.quantise(self.ops, update, self.entropy, weighted=True)
        return [Send(SERVER, PaddedUpload(self.ops.mask(x, self.seed, [1])))]


class PadsServer(Server):
    """Deals pads, adds uploads, takes the survivors' pads off."""

    stages = {"upload": Stage(PaddedUpload, "upload", "uncover")}

    def __init__(self, users: Iterable[int], least: int, params: Params, ops: Ops, entropy: Entropy) -> None:
        super().__init__(users, ops)
        self.least, self.params, self.entropy = least, params, entropy

    def start(self) -> Effects:
        self.seeds = {user: self.ops.secret(self.entropy(f"pad {user}")) for user in self.users}
        return [*self.open_stage("upload", self.users), *(Send(u, Pad(s)) for u, s in self.seeds.items())]

    def needed(self, stage: str) -> int:
        return self.least

    def reject_reason(self, sender: int, message: PaddedUpload) -> str:
        return misshapen(message.padded, 1, self.params.d + 1, U32)

    def uncover(self, got: dict[int, PaddedUpload]) -> Effects:
        ops = self.ops
        ops.phase("recovery")
        padded = ops.total(ops.join([message.padded for message in got.values()]))
        seeds = ops.join([self.seeds[user] for user in got])
        total = ops.mask(padded, seeds, [-1] * len(got))
        mean = ops.dequantise(total, self.params.levels, None)
        return [Result(total, mean, tuple(map(Member, got)))]


class DealtPads(Protocol):
    """Pads dealt by a trusted server; a sum is over all but D users and `spare` more, at least two."""

    points, timers, model_with = ("training", "upload"), ("upload",), (Pad, Pad)

    spare: Natural = 0
    """Users who may be missing beside the D that the scenario allows for."""

    def needed(self, stage: str, p: Params) -> int:
        return max(2, p.N - p.D - self.spare)

    def max_colluders(self, p: Params) -> None:
        """None: the dealer of the pads can read every update."""

    def problems(self, p: Params) -> Problems:
        if self.spare > p.N - p.D - 2:
            yield "spare", f"spare={self.spare} must not be above N - D - 2 = {p.N - p.D - 2}"

    def client(self, user: int, p: Params, ops: Ops, entropy: Entropy) -> PadsClient:
        return PadsClient(user, p, ops, entropy)

    def server(self, users: Sequence[int], p: Params, ops: Ops, entropy: Entropy) -> PadsServer:
        return PadsServer(users, self.needed("upload", p), p, ops, entropy)
