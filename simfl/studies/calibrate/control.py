"""The seconds of `ONE_BY_ONE`, the work that costs something a time whatever its size.

Small rounds of short updates run over the loopback, and each step is timed beside its counted work. Seconds
that the other kinds do not explain are shared out by least relative squares, none of them negative.
An agreement in the midst of a round takes a tenth longer than in a loop of its own: hence from rounds too.
"""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import nnls

from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import Handle
from simfl.protocols.loopback import run_round
from simfl.protocols.machine import SERVER, Effects, Params, Update
from simfl.protocols.protocol import Mode
from simfl.protocols.registry import PROTOCOLS
from simfl.random_streams import Entropy
from simfl.studies.watch import watched

ONE_BY_ONE = ("step", "call", "row", "agree", "aead_item", "sharing", "secret", "decoding")
SIZES = (8, 32)
D = 16
Q = 2**32 - 5

Steps = dict[tuple[Any, ...], Counter[str]]
"""(protocol, users, server or not, call, message) -> the work of all such steps, with their `cpu_ns`."""


def play(protocol: str, users: int, steps: Steps, round_: int) -> None:
    """Run one round, one user of it lost, and add its steps to `steps`."""
    kind, ops = PROTOCOLS[protocol](), EagerOps(Q)
    params = Params(d=D, q=Q, T=users // 4, U=users // 2, t=users // 4 + 1, k=users // 2, clip=1.0)

    def timed(party: int, name: str, own: Callable[..., Effects], *arguments: Any) -> Effects:
        if name == "expire":  # stale timers too expire here, so that it is many things in one
            return own(*arguments)
        ops.begin((), "offline")
        effects = own(*arguments)
        message = getattr(arguments[-1], "kind", "") if arguments else ""
        for segment in ops.end():
            steps[protocol, users, party == SERVER, name, message].update(segment.work, cpu_ns=segment.cpu_ns)
        return effects

    roots = {u: Entropy(bytes(32), protocol, users, round_, u) for u in (SERVER, *range(users))}
    update = Update(Handle(1, D, 4, np.zeros((1, D), np.float32)), 1)
    clients = {u: watched(kind.client(u, params, ops, roots[u]), u, timed) for u in range(users)}
    run_round(
        watched(kind.server(range(users), params, ops, roots[SERVER]), SERVER, timed),
        clients,
        dict.fromkeys(range(users), update),
        fate=lambda user, message: "lose" if (user, message.point) == (1, "upload") else "deliver",
        offline=kind.offline,
    )


def measure(known: Mapping[str, float], round_: int) -> dict[str, float]:
    """Return the seconds of `ONE_BY_ONE` from rounds of all synchronous protocols, given the other kinds'."""
    steps: Steps = defaultdict(Counter)
    collecting = gc.isenabled()
    gc.disable()  # a collection amid a step would be taken for its work
    try:
        for protocol, users in product(PROTOCOLS, SIZES):
            if PROTOCOLS[protocol].mode is Mode.ROUNDS:
                play(protocol, users, steps, round_)
    finally:
        if collecting:
            gc.enable()
    rows, left = [], []
    for work in steps.values():  # relative: each row is divided by the seconds that it explains
        taken_s = work.pop("cpu_ns") / 1e9
        explained = sum(amount * known[kind] for kind, amount in work.items() if kind not in ONE_BY_ONE)
        rows.append([work[kind] / taken_s for kind in ONE_BY_ONE])
        left.append(max(0.0, 1 - explained / taken_s))
    found, _ = nnls(np.array(rows), np.array(left))
    return {kind: max(float(rate), 1e-12) for kind, rate in zip(ONE_BY_ONE, found, strict=True)}
