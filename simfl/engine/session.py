"""A simulation of one protocol: the server's side and all users' sides, joined by virtual links."""

from __future__ import annotations

from simfl.dataplane.ops import Ops, Trainer
from simfl.engine.buffered import Buffer
from simfl.engine.checkpoints import Checkpoints, Past
from simfl.engine.clocks import Clock
from simfl.engine.devices import Runtime
from simfl.engine.energy import Meter
from simfl.engine.environment import Environment
from simfl.engine.rounds import Rounds
from simfl.engine.setup import ProtocolSetup, RunConfig
from simfl.engine.user_side import UserSide
from simfl.learning.server_opt import ServerRule
from simfl.random_streams import Streams


class Session:
    """One protocol's run in virtual time."""

    def __init__(
        self,
        config: RunConfig,
        setup: ProtocolSetup,
        ops: Ops,
        clock: Clock,
        trainer: Trainer,
        streams: Streams,
        rule: ServerRule,
    ) -> None:
        self.env, self.ops, self.config = Environment(), ops, config
        self.runtime = Runtime(self.env, config, setup, ops, clock, trainer, streams)
        self.trace = self.runtime.trace
        self.network = config.network(self.env)
        drops_idle = setup.kind.asynchronous and not setup.kind.connected
        self.users = UserSide(self.runtime, self.network, drops_idle=drops_idle)
        if config.energy_of or config.server_powers:
            self.runtime.meter = Meter(self.users, self.network)
        side = Buffer if setup.kind.asynchronous else Rounds
        self.server = side(self.runtime, self.network, self.users, rule)
        self.server.receiver = self.users
        self.users.server = self.users.receiver = self.server

    @property
    def done(self) -> bool:
        return self.server.done

    @property
    def setup(self) -> ProtocolSetup:
        return self.runtime.setup

    @setup.setter
    def setup(self, setup: ProtocolSetup) -> None:
        """Let machines be made in another way; before the run."""
        self.runtime.setup = setup

    def resume(self, past: Past) -> None:
        """Note each round's end for resuming; go over finished rounds first, if there are any."""
        self.server.checkpoints = Checkpoints(self.server, self.users, past)

    def close(self) -> None:
        """End the run: work and transfers in progress go into the trace as broken off."""
        self.network.close()
        for device in (self.server.device, *self.users.devices.values()):
            device.close()
        if self.runtime.meter is not None:
            self.runtime.meter.report(self.server.round - 1)

    def discard(self) -> None:
        """Free what the run held: its parts point at each other, and would stay until Python's collection."""
        for part in (self.server, self.users, self.network, self.runtime, self):
            vars(part).clear()
