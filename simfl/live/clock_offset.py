"""The clock of another machine, estimated by pings: the middle of the ping with the shortest round trip.

The other clock was read between the question and its answer. So the estimate is wrong by at most half that
round trip, whatever the shares of the two ways. Thus a message that is no faster than that ping cannot seem
to arrive before it was sent.
"""

import time
from dataclasses import dataclass

PINGS = 8
"""Number of pings."""


@dataclass
class ClockOffset:
    """The other clock minus ours."""

    answers: int = 0
    """Pings that were answered."""
    # Longer than any round trip, so that the first ping counts.
    trip_ns: int = 2**62
    """Shortest round trip of a ping."""
    ns: int = 0
    """Estimate by that ping."""

    def take(self, sent: int, at: int) -> None:
        """Record the answer, received now, to a ping of time `sent`; the other clock then read `at`."""
        # A clock that no correction of the date sets back; machines count it from different starts, which the
        # estimate covers.
        now = time.monotonic_ns()
        self.answers += 1
        if now - sent < self.trip_ns:
            self.trip_ns, self.ns = now - sent, at - (sent + now) // 2

    @property
    def known(self) -> bool:
        """True once all pings are answered."""
        return self.answers >= PINGS

    @property
    def error_ns(self) -> int:
        """Largest possible error of the estimate."""
        return self.trip_ns // 2
