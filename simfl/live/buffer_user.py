"""A user of a live run over a buffer: its machine lives for the whole run, and a part of it is a cycle.

A user that is lost is offline for a while, as in virtual time. When it is back it says how many messages it
has taken, and is sent the others again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from simfl.engine.presence import LOST, WHY
from simfl.engine.user_round import State, UserRound
from simfl.live.connection import Connection
from simfl.live.user import LiveUser
from simfl.live.wire import Envelope, Taken
from simfl.population.dropout import PlannedLoss
from simfl.protocols.contracts import ClientMachine
from simfl.protocols.machine import Subject, UpdateId

SELDOM = 8  # messages of which the server need not know yet that they came


class LiveBufferUser(LiveUser):
    """came: messages of the protocol so far. stays: how often it went offline; what was in the air then is
    sent to it again."""

    def __init__(self, *parts: Any) -> None:
        self.came = self.stays = 0
        super().__init__(*parts)
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
        self.later(self.user, False, partial(self._came, envelope, self.stays))

    def _came(self, envelope: Envelope, stay: int) -> None:
        if stay != self.stays:
            return
        self.came += 1
        if self.came % SELDOM == 0:
            self._tell_taken()
        subject = envelope.message.subject
        task = self.task_of(self.user, envelope.round, subject)
        if task is not None and not task.lost:
            task.coming += 1
            self._arrived(task, envelope)
        elif not isinstance(subject, UpdateId):  # of no cycle, and not of one that came to nothing
            self._arrived(None, envelope)

    # -- coming and going
    def get_ready(self, connection: Connection) -> None:
        super().get_ready(connection)
        self._tell_taken()

    def _tell_taken(self) -> None:
        if self.connected is not None:
            self.connected.say(Taken(self.came))

    def online(self, user: int, now: bool) -> None:
        self.stays += not now
        super().online(user, now)

    def broken(self, connection: Connection) -> None:
        super().broken(connection)
        if not self.finished.is_set():
            self._stay_away()

    def on_lost(self, task: UserRound) -> None:
        self._stay_away()

    def _stay_away(self) -> None:
        if self.presence.online(self.user):
            self.presence.leave(self.user, LOST)
            back = self.env.now + (self.world.return_ns or 0)
            self.env.at(back, partial(self.presence.come, self.user, LOST))

    def went_offline(self, user: int, why: str, row: int) -> None:
        for task in self.tasks.values():
            if not task.lost and task.state < State.SENT:
                self.lose(task, task.phase, WHY[why], row)
