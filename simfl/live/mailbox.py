"""A user's mailbox in a live run: what it may not have, as its connection broke, is sent to it again.

Messages are numbered as they are sent. A user says now and then how many it has taken, and always when it is
back; the rest of them are kept.
"""

from collections import deque

from simfl.engine.links import Transmission
from simfl.live.connection import LiveLink, LiveNetwork
from simfl.live.wire import Malformed


class Mailbox(LiveLink):
    """The server's end of a user's downlink.

    Attributes:
        taken: Messages that the user has acknowledged.
        unacknowledged: The messages after those.
    """

    def __init__(self, network: LiveNetwork, user: int) -> None:
        super().__init__(network, user)
        self.taken = 0
        self.unacknowledged: deque[Transmission] = deque()
        self.paused = False

    def send(self, transmission: Transmission) -> None:
        self.unacknowledged.append(transmission)
        if not self.paused:
            super().send(transmission)

    def online(self, now: bool) -> None:
        """Keep messages while the user is offline; send them when it is back."""
        self.paused = not now
        for transmission in self.unacknowledged if now else ():
            super().send(transmission)

    def acknowledge(self, count: int) -> None:
        """Forget what the user has. Malformed for a count that cannot be."""
        if not self.taken <= count <= self.taken + len(self.unacknowledged):
            most = self.taken + len(self.unacknowledged)
            raise Malformed(f"{count} messages taken: there are {self.taken} to {most}")
        while self.taken < count:
            self.unacknowledged.popleft()
            self.taken += 1
