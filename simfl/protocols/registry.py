"""The protocols by name. A new one is a module, a line here, a scenario and a test file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simfl.dataplane.ops import Ops
from simfl.protocols import fedavg, fedbuff, graphs, lightsecagg, lightsecagg_async, secagg
from simfl.protocols.machine import Entropy, Params

KEYED = ("advertise", "shares", "training", "upload", "recovery")
PLAIN = ("training", "upload")
STAGES = ("advertise", "shares", "upload", "recovery")


@dataclass(frozen=True, slots=True)
class Kind:
    """How a protocol's machines are made, and what a scenario must know of it.

    points: where in a round its users act, and so can be lost; timers: the deadlines its server sets;
    model_with: with which message the model goes to a user when the offline phase runs beside training,
    and when it comes first; None where there is no offline phase; connected: whether users stay connected
    while they are idle, so that the server may speak to them at any time and hears of their coming and going.
    """

    summary: str
    source: str
    client: Callable[[int, Params, Ops, Entropy], Any]
    server: Callable[[Sequence[int], Params, Ops, Entropy], Any]
    points: tuple[str, ...]
    timers: tuple[str, ...]
    model_with: tuple[str, str] | None = ("invite", "inbox")
    asynchronous: bool = False
    weighted: bool = True
    connected: bool = True

    @property
    def offline(self) -> bool:
        """Whether there is an offline phase."""
        return self.model_with is not None


PROTOCOLS = {
    "fedavg": Kind(
        "no protection; the floor",
        "McMahan 2017",
        client=lambda user, p, ops, entropy: fedavg.FedAvgClient(user, ops, entropy),
        server=lambda users, p, ops, entropy: fedavg.FedAvgServer(users, p.d, ops),
        points=PLAIN,
        timers=("upload",),
        model_with=None,
    ),
    "secagg": Kind(
        "pairwise masks, Shamir shares, complete graph",
        "Bonawitz 2017",
        client=secagg.SecAggClient,
        server=lambda users, p, ops, entropy: secagg.SecAggServer(graphs.complete(users), p, ops),
        points=KEYED,
        timers=STAGES,
    ),
    "secagg_plus": Kind(
        "pairwise masks over a random k-regular graph",
        "Bell 2020",
        client=secagg.SecAggClient,
        server=lambda users, p, ops, entropy: secagg.SecAggServer(
            graphs.harary(users, p.k, entropy("graph")), p, ops
        ),
        points=KEYED,
        timers=STAGES,
    ),
    "ccesa": Kind(
        "pairwise masks over an Erdos-Renyi graph",
        "CCESA (Choi 2020), Alg. 1",
        client=secagg.SecAggClient,
        server=lambda users, p, ops, entropy: secagg.SecAggServer(
            graphs.erdos_renyi(users, p.p, entropy("graph")), p, ops
        ),
        points=KEYED,
        timers=STAGES,
    ),
    "lightsecagg": Kind(
        "one-shot recovery of the aggregate mask",
        "LightSecAgg Alg. 1",
        client=lightsecagg.LightSecAggClient,
        server=lambda users, p, ops, entropy: lightsecagg.LightSecAggServer(users, p, ops),
        points=KEYED,
        timers=STAGES,
    ),
    "fedbuff": Kind(
        "buffered asynchronous, a trusted buffer",
        "Nguyen 2021",
        client=fedbuff.FedBuffClient,
        server=fedbuff.FedBuffServer,
        points=PLAIN,
        timers=("upload",),
        model_with=None,
        asynchronous=True,
        weighted=False,
        connected=False,
    ),
    "lightsecagg_async": Kind(
        "LightSecAgg over a buffer, staleness weights in the field",
        "LightSecAgg App. F",
        client=lightsecagg_async.LightSecAggAsyncClient,
        server=lightsecagg_async.LightSecAggAsyncServer,
        points=("shares", "training", "upload"),
        timers=("advertise", "upload", "recovery"),
        model_with=("begin", "begin"),
        asynchronous=True,
        weighted=False,
    ),
}
