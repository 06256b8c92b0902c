"""A user of a live run over a buffer: its machine lives for the whole run, and a part of it is a cycle.

A user that is lost is offline for a while, as in virtual time. When it is back it says how many messages it
has taken, and is sent the others again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from simfl.live.connection import Connection
from simfl.live.user import LiveUser
from simfl.live.wire import Envelope, Taken
from simfl.protocols.machine import UpdateId

SELDOM = 8  # messages of which the server need not know yet that they came


class LiveBufferUser(LiveUser):
    """One user.

    Attributes:
        came: Messages of the protocol so far.
        absences: How often it went offline; what was in the air then is sent to it again.
    """

    def __init__(self, *parts: Any) -> None:
        self.came = self.absences = 0
        super().__init__(*parts)

    def take(self, envelope: Envelope) -> None:
        self._later(partial(self._came, envelope, self.absences))

    def _came(self, envelope: Envelope, stay: int) -> None:
        if stay != self.absences:
            return
        self.came += 1
        if self.came % SELDOM == 0:
            self._tell_taken()
        subject = envelope.message.subject
        task = self.tasks.get(subject.cycle) if isinstance(subject, UpdateId) else None
        if task is not None and not task.is_lost:
            task.inbound += 1
            self._arrived(task, envelope)
        elif not isinstance(subject, UpdateId):  # of no cycle, and not of one that came to nothing
            self._arrived(None, envelope)

    # -- coming and going
    def get_ready(self, connection: Connection) -> None:
        super().get_ready(connection)
        self._tell_taken()

    def _tell_taken(self) -> None:
        if self.connected is not None:
            self.connected.send_control(Taken(self.came))

    def switched(self, user: int, now: bool) -> None:
        self.absences += not now
        super().switched(user, now)

    def on_broken(self, connection: Connection) -> None:
        super().on_broken(connection)
        if not self.finished.is_set():
            self.users.stay_away(self.user, self.config.return_ns or 0)
