"""FedBuff (Nguyen 2021): a buffer of K plain updates over the reals, staleness weights s(tau) (eq. 26).

server   in flight -> buffer of K -> aggregate at once -> version + 1
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from simfl.dataplane.ops import Ops
from simfl.protocols.buffered_server import BufferedServer, Upload
from simfl.protocols.client import BufferedClient
from simfl.protocols.machine import SERVER, Effects, Entropy, Params, Result, Send, Update
from simfl.protocols.protocol import Mode, Protocol
from simfl.protocols.staleness import AnyStaleness, Constant


class FedBuffClient(BufferedClient):
    def submit(self, update: Update) -> Effects:
        self.ops.phase("upload")
        assert update.id is not None
        return [Send(SERVER, Upload(update.id, update.version, update.delta))]


class FedBuffServer(BufferedServer):
    def aggregate(self, taken: list[Upload]) -> Effects:
        members = tuple(self.member(w, self.params.staleness(self.version - w.version)) for w in taken)
        weights = [m.factor for m in members]
        total = self.ops.real_sum([w.vector for w in taken], weights)
        result = Result(total, self.ops.divide(total, sum(weights)), members)
        return self.finish([result], advance=True)


class FedBuff(Protocol):
    """Buffered asynchronous aggregation without protection (Nguyen 2021)."""

    mode = Mode.BUFFERED
    weighted, connected = False, False
    member_bytes = 7_000

    protocol: Literal["fedbuff"] = "fedbuff"
    staleness: AnyStaleness = Constant()
    """The weight of an update that is tau versions old."""

    def client(self, user: int, p: Params, ops: Ops, entropy: Entropy) -> FedBuffClient:
        return FedBuffClient(user, p, ops, entropy)

    def server(self, users: Sequence[int], p: Params, ops: Ops, entropy: Entropy) -> FedBuffServer:
        return FedBuffServer(users, p, ops, entropy)

    def needed(self, stage: str, p: Params) -> int:
        return 1

    def params(self, p: Params) -> Params:
        return replace(p, staleness=self.staleness.checked)

    @classmethod
    def small(cls, users: int, lost: int) -> dict[str, Any]:
        return {"staleness": {"polynomial": 1.0}}
