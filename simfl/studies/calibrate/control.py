"""The seconds of each thing that is done one by one: a step, an operation, a row, an agreement, a secret.

The machines of small rounds run over the loopback, and each of their steps is timed beside its counted work.
What the other kinds do not explain is shared out over `ONE_BY_ONE`, work that costs something a time whatever
its size, by least relative squares, none of them negative. Updates are short: nothing else takes long.
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

Steps = dict[tuple[Any, ...], list[tuple[Mapping[str, int], float]]]
"""(protocol, users, server or not, call, message) -> counted work and CPU seconds of each such step."""


def play(protocol: str, users: int, steps: Steps, round_: int) -> None:
    """Run one round, one user of it lost, and add its steps to `steps`."""
    kind, ops = PROTOCOLS[protocol](), EagerOps(Q)
    params = Params(d=D, q=Q, T=users // 4, U=users // 2, t=users // 4 + 1, k=users // 2, clip=1.0)

    def timed(party: int, name: str, own: Callable[..., Effects], *arguments: Any) -> Effects:
        if name == "expire":  # stale timers too expire here, so that it is many things in one
            return own(*arguments)
        ops.begin((), "offline")
        effects = own(*arguments)
        work, cpu_ns = Counter[str](), 0
        for segment in ops.end():
            work.update(segment.work)
            cpu_ns += segment.cpu_ns
        message = getattr(arguments[-1], "kind", "") if arguments else ""
        steps[protocol, users, party == SERVER, name, message].append((work, cpu_ns / 1e9))
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
    steps: Steps = defaultdict(list)
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
    for like in steps.values():  # relative: each row is divided by the seconds that it explains
        work = Counter[str]()
        for counted, _ in like:
            work.update(counted)
        taken = sum(cpu_s for _, cpu_s in like)
        explained = sum(amount * known[kind] for kind, amount in work.items() if kind not in ONE_BY_ONE)
        rows.append([work[kind] / taken for kind in ONE_BY_ONE])
        left.append(max(0.0, 1 - explained / taken))
    found, _ = nnls(np.array(rows), np.array(left))
    return {kind: max(float(rate), 1e-12) for kind, rate in zip(ONE_BY_ONE, found, strict=True)}
