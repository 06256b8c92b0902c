"""The clock of another machine, by pings: of the one with the least round trip, the middle.

The other's clock was read between the question and its answer, so the offset is wrong by half that round trip
at most, whatever the two ways take. A message that takes no less than the pings did cannot seem to arrive
before it was sent.
"""

import time
from dataclasses import dataclass

PINGS = 8


@dataclass
class Offset:
    """The other clock less ours. heard: answers; trip_ns: the least round trip."""

    heard: int = 0
    trip_ns: int = 2**62
    ns: int = 0

    def take(self, sent: int, at: int) -> None:
        """Take in an answer that came now: to what was asked at `sent`, when the other's clock said `at`."""
        now = time.monotonic_ns()
        self.heard += 1
        if now - sent < self.trip_ns:
            self.trip_ns, self.ns = now - sent, at - (sent + now) // 2

    @property
    def known(self) -> bool:
        return self.heard >= PINGS

    @property
    def off_ns(self) -> int:
        """The most by which it is wrong."""
        return self.trip_ns // 2
