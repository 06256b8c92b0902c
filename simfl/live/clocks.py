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
    """The other clock less ours."""

    answers: int = 0
    trip_ns: int = 2**62
    """Shortest round trip of a ping."""
    ns: int = 0
    """Estimate by the ping with that round trip."""

    def take(self, sent: int, at: int) -> None:
        """Record the answer to a ping sent at `sent`, received now; the other's clock read `at`."""
        now = time.monotonic_ns()
        self.answers += 1
        if now - sent < self.trip_ns:
            self.trip_ns, self.ns = now - sent, at - (sent + now) // 2

    @property
    def known(self) -> bool:
        return self.answers >= PINGS

    @property
    def error_ns(self) -> int:
        """Largest possible error of the estimate."""
        return self.trip_ns // 2
