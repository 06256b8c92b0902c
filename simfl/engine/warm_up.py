"""Touch every kernel once before the measured clock starts, so that no step pays for a first call."""

from dataclasses import replace

import numpy as np

from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import F32, Handle
from simfl.learning.trainer import Trainer
from simfl.protocols.loopback import LoopbackBuffer, run_round
from simfl.protocols.machine import Params, Update
from simfl.protocols.protocol import Protocol
from simfl.random_streams import Entropy

LENGTH = 2048  # a longer update would touch no other code
_warm: set[tuple[object, ...]] = set()  # protocols and sizes whose code this process has touched


def warm(kind: Protocol, params: Params, users: int, trainer: Trainer) -> None:
    """Do a small round, or one aggregation of a buffer, one training and one evaluation; drop the results.

    The round is done once in a process for each protocol and size, as it is the code that gets warm.
    """
    size = type(kind), params.q, params.N, params.T, params.U, params.t, params.K, users
    if size not in _warm:
        _warm.add(size)
        _round(kind, params, users)
    weights = trainer.initial(bytes(32))
    trainer.train([weights], [0], [bytes(32)], [0])
    if trainer.evaluates:
        trainer.evaluate(weights)


def _round(kind: Protocol, params: Params, users: int) -> None:
    small = replace(params, d=min(params.d, LENGTH), levels=16, clip=1.0, session=b"warm")
    ops, root = EagerOps(params.q), bytes(32)
    delta = Handle(1, small.d, F32, np.zeros((1, small.d), np.float32))
    clients = {u: kind.client(u, small, ops, Entropy(root, "warm", u)) for u in range(users)}
    server = kind.server(range(users), small, ops, Entropy(root, "warm", -1))
    if kind.asynchronous:
        buffer = LoopbackBuffer(server, clients, lambda update, t: Update(delta, 1, update, t), kind.offline)
        buffer.settle()
        for user in buffer.admitted()[: params.K]:
            buffer.begin(user)
            buffer.settle()
            buffer.submit(user)
        buffer.settle()
    else:
        run_round(server, clients, dict.fromkeys(range(users), Update(delta, 1)), offline=kind.offline)
