"""A user of a live run over a buffer: its machine lives for the whole run, and a part of it is a cycle.

A user that is lost has a new connection at once, for its report, and says that it is back when it is.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from simfl.engine.user_round import UserRound
from simfl.live.connection import Connection
from simfl.live.user import LiveUser
from simfl.live.wire import Envelope, Taken
from simfl.population.dropout import PlannedLoss
from simfl.protocols.contracts import ClientMachine
from simfl.protocols.machine import Subject, UpdateId

SELDOM = 8  # messages of which the server is not told yet that they came


class LiveBufferUser(LiveUser):
    """came: messages of the protocol so far. away: it is lost, and not back yet."""

    def __init__(self, wires: Any, *parts: Any) -> None:
        self.came = 0
        self.away = False
        super().__init__(wires, *parts)
        machines = self.machines
        self.entropy = machines.entropy(self.user, 0)
        self.client = machines.client(self.user, machines.params, self.ops, self.entropy)

    def part(self, index: int, cycle: int | None, plan: PlannedLoss | None) -> UserRound:
        nobody: Any = None  # the server's machine is elsewhere
        update, weights = UpdateId(self.user, cycle or 0), self.host.weights
        return self.machines.part(self.user, index, self.client, self.entropy, nobody, weights, plan, update)

    def task_of(self, user: int, index: int, subject: Subject) -> UserRound | None:
        return self.tasks.get(subject.cycle) if isinstance(subject, UpdateId) else None

    def client_of(self, user: int, task: UserRound | None) -> ClientMachine:
        return self.client

    def take(self, envelope: Envelope) -> None:
        self.came += 1
        if self.came % SELDOM == 0:
            self._tell_taken()
        if isinstance(envelope.message.subject, UpdateId):
            super().take(envelope)
        else:
            self.later(self.user, False, partial(self._arrived, None, envelope))

    # -- coming and going
    def greet(self, connection: Connection) -> None:
        super().greet(connection)
        self._tell_taken()

    def _tell_taken(self) -> None:
        if self.connected is not None and not self.away:
            self.connected.say(Taken(self.came))

    def report(self, *_: Any) -> None:
        super().report()
        if not self.away:
            self.away = True
            self.env.at(self.env.now + (self.world.return_ns or 0), self._come_back)

    def _come_back(self) -> None:
        self.away = False
        self._tell_taken()
