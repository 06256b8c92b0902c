"""The server around its machine, without a clock: it opens rounds and cycles, sends and steps the model."""

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.dataplane.handles import F32, F64, Handle
from simfl.dataplane.ops import Ops, Trainer
from simfl.engine.setup import ModelDownload, RunConfig
from simfl.engine.user_round import UserRound
from simfl.learning.server_opt import ServerRule
from simfl.protocols.contracts import BufferServer, RoundServer
from simfl.protocols.machine import Effects, Message, Result, Send
from simfl.protocols.protocol import Protocol


class ServerHost:
    """The server of a run, with its global model x^(t) and the memory of its rule.

    weights: 1 x d float32. version: t, how many aggregates were applied. models: the last ones, which users
    may be given. moments: what an adaptive rule remembers [rows, d], if it does.
    """

    def __init__(
        self,
        kind: Protocol,
        ops: Ops,
        trainer: Trainer,
        rule: ServerRule,
        world: RunConfig,
        seed: NDArray[np.uint8],
    ) -> None:
        self.kind, self.ops, self.rule, self.lr = kind, ops, rule, world.server_lr
        self.model_with = kind.model_with[not world.overlap] if kind.model_with else None
        self.version = 0
        self.weights = ops.run_uncharged(trainer.initial, (1, trainer.d, F32), seed)
        self.models = deque([self.weights], maxlen=1 + world.most_behind)
        self.moments: Handle | None = None
        if rule.rows:
            self.moments = ops.run_uncharged(rule.first, (rule.rows, trainer.d, F64), trainer.d)

    def open_round(self, machine: RoundServer, users: Sequence[int]) -> Effects:
        """Open a round; where there is no offline phase the model goes out at once."""
        effects = machine.start()
        model = ModelDownload(self.weights, version=self.version)
        return effects if self.kind.offline else [*effects, *(Send(user, model) for user in users)]

    def open_cycle(self, machine: BufferServer, task: UserRound, behind: int = 0) -> Effects:
        """Let a user begin its cycle of an asynchronous run, on the model of so many versions ago."""
        assert task.id is not None
        behind = min(behind, machine.version)
        effects = machine.begin(*task.id, behind) if behind else machine.begin(*task.id)
        task.version, task.weights = machine.version - behind, self.models[-1 - behind]
        return effects if self.kind.offline else [*effects, Send(task.user, self.model_of(task))]

    def model_of(self, task: UserRound) -> ModelDownload:
        return ModelDownload(task.weights, task.id, task.version)

    @property
    def model_bytes(self) -> int:
        return ModelDownload(self.weights).size_bytes

    def model_follows(self, message: Message) -> bool:
        """Return True for the message behind which the model goes to a user."""
        return type(message) is self.model_with

    def step(self, effects: Effects) -> bool:
        """Apply the aggregate among a step's effects, x^(t+1) from x^(t) and g; True if there is one."""
        result = next((effect for effect in effects if isinstance(effect, Result)), None)
        if result is None:
            return False
        state = result.mean
        if self.moments is not None:
            state = self.moments = self.ops.moments(self.rule.remember, self.moments, result.mean)
        self.weights = self.ops.apply(self.rule.apply, self.weights, state, self.lr)
        self.models.append(self.weights)
        self.version += 1
        return True
