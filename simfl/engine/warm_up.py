"""Touch every kernel once before the measured clock starts, so that no step pays for a first call."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import Handle
from simfl.learning.trainer import Trainer
from simfl.protocols.fedavg import FedAvg
from simfl.protocols.lightsecagg import LightSecAgg
from simfl.protocols.loopback import run_round
from simfl.protocols.machine import Params, Update
from simfl.protocols.protocol import Protocol
from simfl.random_streams import Entropy

LENGTH = 2048
"""A longer update would touch no other code."""


def warm(kind: Protocol, params: Params, users: int, trainer: Trainer) -> None:
    """A small round over the loopback, one training and one evaluation, whose results are dropped."""
    stand_in = (LightSecAgg() if kind.offline else FedAvg()) if kind.asynchronous else kind
    small = replace(params, d=min(params.d, LENGTH), levels=16, clip=1.0, session=b"warm")
    ops = EagerOps(params.q)
    root = bytes(32)
    update = Update(Handle(1, small.d, 4, np.zeros((1, small.d), np.float32)), 1)
    clients = {u: stand_in.client(u, small, ops, Entropy(root, "warm", u)) for u in range(users)}
    server = stand_in.server(range(users), small, ops, Entropy(root, "warm", -1))
    run_round(server, clients, dict.fromkeys(range(users), update))
    vector = ops.prg(ops.secret(root), small.d)
    ops.weighted_sum([vector, vector], [1, 2])
    weights = trainer.initial(root)
    trainer.train([weights], [0], [root], [0])
    trainer.evaluate(weights)
