"""FedBuff (Nguyen 2021): a buffer of K plain updates over the reals, staleness weights s(tau) (eq. 26).

server   in flight -> buffer of K -> aggregate at once -> version + 1
"""

from __future__ import annotations

from simfl.dataplane.ops import Ops
from simfl.protocols.buffered_server import BufferedServer, Upload, Waiting
from simfl.protocols.machine import SERVER, Effects, Entropy, Ignore, Message, Params, Result, Send, Update


class FedBuffClient:
    """Sends what it is given."""

    def __init__(self, user: int, params: Params, ops: Ops, entropy: Entropy) -> None:
        self.ops = ops

    def receive(self, sender: int, message: Message) -> Effects:
        """A plain client is told nothing."""
        return [Ignore(sender, message.kind, "unknown", message.about)]

    def submit(self, update: Update) -> Effects:
        """The local update is there."""
        self.ops.phase("upload")
        return [Send(SERVER, Upload(update.about, update.version, update.delta))]


class FedBuffServer(BufferedServer):
    """A trusted buffer."""

    def start(self) -> Effects:
        return []

    def invite(self, user: int, name: str) -> Effects:
        return []

    def aggregate(self, taken: list[Waiting]) -> Effects:
        members = tuple(self.member(w, self.params.staleness(self.version - w.version)) for w in taken)
        weights = [m.factor for m in members]
        total = self.ops.real_sum([w.vector for w in taken], weights)
        result = Result(total, self.ops.divide(total, sum(weights)), members)
        return self.finish([result], advance=True)
