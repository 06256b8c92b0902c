"""TCP's slow start and headers, beside a fluid link.

A sender puts a window of w bytes on the path and waits for its first acknowledgement, a round trip after its
first byte left; then the window has doubled. So a message waits, besides its transfer, for the sum of
max(0, RTT - time of w on the link) over the windows w, 2 w, 4 w, ... that end before it. Over a path with
real round trips and fresh connections this was 1.0 % off Linux's cubic (median; 2.6 % off its BBR), and the
model without it 49 %.

RTT is twice the link's latency. A window takes the time that it really takes, also where users crowd the
server's link: 20 users who download a model at once over 50 Mbit/s wait for hardly any acknowledgement (live
runs; with waits at each one's own rate a download was 0.2 s of 1 s too long). And a sender whose round trip
grows by an eighth, as others crowd the link, stops doubling (cubic's HyStart): from then on it moves a window
a round trip. Not counted: handshakes, the acknowledgements' own bytes, lost packets, slow growth after that.

Ha and Rhee, "Taming the elephants: New TCP slow start", Computer Networks 55 (2011); net/ipv4/tcp_cubic.c.
"""

from typing import Annotated, Literal

from pydantic import Field

from simfl.config.blocks import Block, Count

HYSTART_SEGMENTS = 16
"""A smaller window doubles whatever its round trip is."""
HYSTART_NS = 4_000_000, 16_000_000
"""The least and the greatest time by which a round trip has to grow; between them it is an eighth."""
LEAST_RTO_NS = 200_000_000
"""Added to a round trip, at the least, before a sender counts as idle on Linux (`tcp_rto_min`)."""


class Tcp(Block):
    """TCP on a user's link, whose rates are then those of the wire.

    `fresh` opens the window anew for each message. `idle` keeps it, and halves it for each timeout (a round
    trip + 0.2 s) that passes without sending, as Linux does. `never` has it always open.
    """

    slow_start: Literal["fresh", "idle", "never"]
    """The messages whose window has to open."""
    window: Count = 10
    """Segments in the first window."""
    mss: Count = 1448
    """Bytes of a message in a segment."""
    header_bytes: Annotated[int, Field(strict=True, ge=0, le=1000)] = 66
    """Bytes of headers before each segment: 14 of Ethernet, 20 of IP and 32 of TCP."""

    def wire_bytes(self, size_bytes: int) -> int:
        """Return the bytes of a message with its headers.

        >>> Tcp(slow_start="never").wire_bytes(2000)
        2132
        """
        return size_bytes + self.header_bytes * -(-size_bytes // self.mss)

    def stays_open(self, window_bytes: int, queued_ns: int, rtt_ns: int) -> bool:
        """Return True if the next window is the last that is longer, as this one took so much longer.

        >>> Tcp(slow_start="fresh").stays_open(28_960, 8_000_000, 60_000_000)
        True
        """
        least, most = HYSTART_NS
        late = queued_ns > max(least, min(most, rtt_ns // 8))
        return late and window_bytes >= HYSTART_SEGMENTS * self.mss


class Connection:
    """The sender of one direction of a user's link: how far its window has opened, in bytes."""

    __slots__ = ("_idle_since", "_window", "tcp")

    def __init__(self, tcp: Tcp) -> None:
        self.tcp = tcp
        self.broke()

    def broke(self) -> None:
        """Begin anew: the user was offline, or lost."""
        self._window = self._first
        self._idle_since = 0

    @property
    def _first(self) -> int:
        return self.tcp.window * self.tcp.mss

    def begin(self, size_bytes: int, now: int, rtt_ns: int) -> int:
        """Return the first window of a message, in bytes; 0 where it is open."""
        if self.tcp.slow_start == "never":
            return 0
        if self.tcp.slow_start == "fresh":
            return self._first
        # Each timeout that is over halves the window; 63 of them close every window again.
        halvings = min((max(1, now - self._idle_since) - 1) // (rtt_ns + LEAST_RTO_NS), 63)
        begins = max(self._first, self._window >> halvings)
        # By a segment for each that is acknowledged, but no further than twice what was on its way (Linux).
        self._window = max(begins, min(begins + size_bytes, 2 * size_bytes))
        return begins

    def sent(self, now: int) -> None:
        """Note that the last bit of a message has left."""
        self._idle_since = now
