"""A user's mailbox in a live run: messages that it may have missed, as its connection broke, are sent again.

Messages are numbered as they are sent. A user acknowledges their count at intervals, and whenever it is back.
Invariant: messages beyond the acknowledged count are held, so each arrives in order, and counts once
(tests/live/test_mailbox.py).
"""

from collections import deque

from simfl.engine.user_round import Transmission
from simfl.live.connection import LiveLink, LiveNetwork
from simfl.live.wire import Malformed


class Mailbox(LiveLink):
    """The server's end of a user's downlink.

    Attributes:
        taken: Messages that the user has acknowledged.
        unacknowledged: The messages after those, which are held.
        is_paused: The user is offline.
    """

    def __init__(self, network: LiveNetwork, user: int) -> None:
        super().__init__(network, user)
        self.taken = 0
        self.unacknowledged: deque[Transmission] = deque()
        self.is_paused = False

    def send(self, transmission: Transmission) -> None:
        # Before it is sent: the connection may break at any time, and only an acknowledgement shows that it
        # has arrived.
        self.unacknowledged.append(transmission)
        if not self.is_paused:
            super().send(transmission)

    def online(self, now: bool) -> None:
        """Hold messages while the user is offline; send them when it is back."""
        self.is_paused = not now
        # All of them, in order. The user has acknowledged its messages before this, so none arrives twice.
        for transmission in self.unacknowledged if now else ():
            super().send(transmission)

    def acknowledge(self, count: int) -> None:
        """Drop the messages that the user has.

        Raises:
            Malformed: The count is impossible.
        """
        last = self.taken + len(self.unacknowledged)
        # A false count would drop messages that the user never received, or take from an empty deque.
        if not self.taken <= count <= last:
            raise Malformed(f"{count} messages taken: must be from {self.taken} to {last}")
        while self.taken < count:
            self.unacknowledged.popleft()
            self.taken += 1
