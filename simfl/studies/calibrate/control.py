"""What each thing takes that is done one by one: a step, an operation, a row, an agreement, a secret.

Law: the machines of small rounds run over the loopback, and each of their steps is timed beside its counted
work. What the other kinds do not explain is shared out over `KINDS`, what costs something a time whatever its
size, by least relative squares, none of them negative. Updates are short, so that nothing else takes long.
An agreement in the midst of a round takes a tenth longer than in a loop of its own: hence from rounds too.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.optimize import nnls

from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import Handle
from simfl.dataplane.ops import Ops
from simfl.protocols.loopback import run_round
from simfl.protocols.machine import SERVER, Params, Update
from simfl.protocols.protocol import Mode
from simfl.protocols.registry import PROTOCOLS
from simfl.random_streams import Entropy

KINDS = ("step", "call", "row", "agree", "aead_item", "sharing", "secret", "decoding")
SIZES = (8, 32)
D = 16
Q = 2**32 - 5

Steps = dict[tuple[Any, ...], list[tuple[dict[str, int], float]]]
"""(protocol, users, server or not, call, message) -> counted work and CPU seconds of each such step."""


class Timed:
    """Before a machine: its steps' work and time are written down."""

    def __init__(self, machine: Any, ops: Ops, steps: Steps, *key: Any) -> None:
        self.machine, self.ops, self.steps, self.key = machine, ops, steps, key

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.machine, name)
        if name not in ("start", "receive", "submit", "gone"):
            return found

        def call(*arguments: Any) -> Any:
            self.ops.begin((self.key, name), "offline")
            effects = found(*arguments)
            work: dict[str, int] = defaultdict(int)
            cpu_ns = 0
            for segment in self.ops.end():
                cpu_ns += segment.cpu_ns
                for kind, amount in segment.work.items():
                    work[kind] += amount
            what = getattr(arguments[-1], "kind", "") if arguments else ""
            self.steps[(*self.key, name, what)].append((work, cpu_ns / 1e9))
            return effects

        return call


def play(protocol: str, users: int, steps: Steps, round_: int) -> None:
    """One round, one user of it lost; its steps are added to `steps`."""
    kind, ops = PROTOCOLS[protocol](), EagerOps(Q)
    params = Params(d=D, q=Q, T=users // 4, U=users // 2, t=users // 4 + 1, k=users // 2, clip=1.0)
    names = (protocol, users)
    roots = {u: Entropy(bytes(32), *names, round_, u) for u in (SERVER, *range(users))}
    update = Update(Handle(1, D, 4, np.zeros((1, D), np.float32)), 1)
    clients = {u: kind.client(u, params, ops, roots[u]) for u in range(users)}
    server = kind.server(range(users), params, ops, roots[SERVER])
    run_round(
        Timed(server, ops, steps, *names, "server"),
        {u: Timed(client, ops, steps, *names, "user") for u, client in clients.items()},
        dict.fromkeys(range(users), update),
        fate=lambda user, message: "lose" if (user, message.point) == (1, "upload") else "deliver",
    )


def measure(known: Mapping[str, float], round_: int) -> dict[str, float]:
    """`KINDS` from rounds of all synchronous protocols, given the seconds of the other kinds."""
    steps: Steps = defaultdict(list)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for protocol in PROTOCOLS:
            if PROTOCOLS[protocol].mode is Mode.ROUNDS:
                for users in SIZES:
                    play(protocol, users, steps, round_)
    finally:
        if collecting:
            gc.enable()
    rows, left = [], []
    for same in steps.values():
        taken = float(np.mean([cpu_s for _, cpu_s in same]))
        explained = [
            sum(amount * known[kind] for kind, amount in work.items() if kind not in KINDS)
            for work, _ in same
        ]
        counts = [[work.get(kind, 0) for kind in KINDS] for work, _ in same]
        rows.append(np.mean(counts, axis=0) / taken)
        left.append(max(0.0, 1 - float(np.mean(explained)) / taken))
    found, _ = nnls(np.array(rows), np.array(left))
    return {kind: max(float(rate), 1e-12) for kind, rate in zip(KINDS, found, strict=True)}
