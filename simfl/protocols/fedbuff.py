"""FedBuff (Nguyen 2021, Algorithm 1): a buffer of K updates in the clear, over the reals.

    1. upload    A user trains version t_i of the model, and sends its update whenever that is done.
    2. (server)  When K updates wait, the server adds their mean, with weights s(t - t_i) by staleness
                 (LightSecAgg eq. 26), to the model. Version t + 1 begins, with an empty buffer.

The paper's server learning rate is `learning.server_lr`. Differential privacy is simfl's own addition (`dp`,
docs/dp.md): then uploads are noisy whole numbers over F_q, as of FedAvg, and all weigh 1.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from simfl.dataplane.handles import U32
from simfl.dataplane.ops import Ops
from simfl.protocols.buffered_server import BufferedServer, Upload
from simfl.protocols.client import BufferedClient
from simfl.protocols.machine import SERVER, Effects, Entropy, Params, Result, Send, Update
from simfl.protocols.protocol import Mode, Protocol
from simfl.protocols.staleness import AnyStaleness, Constant


class FedBuffClient(BufferedClient):
    """A user that sends its update as it is."""

    def submit(self, update: Update) -> Effects:
        self.ops.phase("upload")
        assert update.id is not None
        p, noisy = self.params, self.params.dp is not None
        vector = p.quantise(self.ops, update, self.entropy, weighted=False) if noisy else update.delta
        return [Send(SERVER, Upload(update.id, update.version, vector))]


class FedBuffServer(BufferedServer):
    """A server that averages K updates by their staleness weights."""

    def aggregate(self, taken: list[Upload]) -> Effects:
        members = tuple(self.member(w, self.params.staleness(self.version - w.version)) for w in taken)
        # Divided by their sum and not by K (eq. 26): old updates lower their own part, not the step.
        weights = [m.factor for m in members]
        total = self.ops.real_sum([w.vector for w in taken], weights)
        result = Result(total, self.ops.divide(total, sum(weights)), members)
        # At once: without masks there is no recovery to wait for.
        return self.finish([result], advance=True)


class NoisyFedBuffServer(FedBuffServer):
    """A server that sums up noisy whole numbers over F_q."""

    dtype = U32

    def aggregate(self, taken: list[Upload]) -> Effects:
        total = self.ops.weighted_sum([w.vector for w in taken], [1] * len(taken))
        # The server's own noise is another one for each aggregate, and so is its name.
        mean = self.params.mean(
            self.ops, total, len(taken), lambda name: self.entropy(f"{name} {self.version}")
        )
        return self.finish([Result(total, mean, tuple(self.member(w, 1) for w in taken))], advance=True)


class FedBuff(Protocol):
    """Buffered asynchronous aggregation without protection (Nguyen 2021)."""

    mode = Mode.BUFFERED
    noisy = True
    weighted, connected = False, False
    member_bytes = 7_000

    protocol: Literal["fedbuff"] = "fedbuff"
    staleness: AnyStaleness = Constant()
    """The weight of an update that is tau versions old."""

    def client(self, user: int, p: Params, ops: Ops, entropy: Entropy) -> FedBuffClient:
        return FedBuffClient(user, p, ops, entropy)

    def server(self, users: Sequence[int], p: Params, ops: Ops, entropy: Entropy) -> FedBuffServer:
        return (FedBuffServer if p.dp is None else NoisyFedBuffServer)(users, p, ops, entropy)

    def needed(self, stage: str, p: Params) -> int:
        return 1

    def params(self, p: Params) -> Params:
        return replace(p, staleness=self.staleness.checked)

    @classmethod
    def small_settings(cls, users: int, lost: int) -> dict[str, Any]:
        return {"staleness": {"polynomial": 1.0}}
