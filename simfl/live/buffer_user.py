"""A user of a live run over a buffer: its machine lasts for the run, and its task is a cycle.

A user that is lost is offline for a while, as in virtual time. When it is back it acknowledges the messages
that it has, and receives the others again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from simfl.live.connection import Connection
from simfl.live.control import Taken
from simfl.live.user import LiveUser
from simfl.live.wire import Envelope
from simfl.protocols.machine import UpdateId

ACKNOWLEDGED_EVERY = 8
"""Messages from one acknowledgement to the next: the server holds that many in vain."""


class LiveBufferUser(LiveUser):
    """One user.

    Attributes:
        received: Messages of the protocol so far.
        absences: Number of times that it went offline; messages that propagated then are sent to it again.
    """

    def __init__(self, *parts: Any) -> None:
        self.received = self.absences = 0
        super().__init__(*parts)

    def take(self, envelope: Envelope) -> None:
        self._delay(partial(self._receive, envelope, self.absences))

    def _receive(self, envelope: Envelope, absences: int) -> None:
        # The user went offline while the message propagated. The server holds the message, as it was not
        # counted, and sends it again.
        if absences != self.absences:
            return
        # Each message counts, also one that is dropped below: the mailbox counts the messages that it sent.
        self.received += 1
        if self.received % ACKNOWLEDGED_EVERY == 0:
            self._send_taken()
        subject = envelope.message.subject
        task = self.tasks.get(subject.cycle) if isinstance(subject, UpdateId) else None
        if task is not None and not task.is_lost:
            task.inbound += 1
            self._arrived(task, envelope)
        # A message of a cycle that was given up is dropped.
        elif not isinstance(subject, UpdateId):
            self._arrived(None, envelope)

    # -- churn
    def announce(self, connection: Connection) -> None:
        super().announce(connection)
        # By this count the server brings the user back, and sends the messages after it
        # (`BufferUsers.on_acknowledged`).
        self._send_taken()

    def _send_taken(self) -> None:
        # Without a connection it counts on, and sends the count when it is back.
        if self.connected is not None:
            self.connected.send_control(Taken(self.received))

    def on_presence(self, user: int, now: bool) -> None:
        self.absences += not now
        super().on_presence(user, now)

    def on_broken(self, connection: Connection) -> None:
        super().on_broken(connection)
        if not self.finished.is_set():
            # The server counts the end of the connection as a loss, so the user is offline as after
            # any other one.
            self.users.stay_away(self.user, self.config.return_ns or 0)
