"""TCP's slow start and headers, added to a fluid link.

A sender puts a window of w bytes on the path and waits for its first acknowledgement, a round trip after its
first byte left. Then the window has doubled. So a message waits, besides its transfer, for the sum of
max(0, RTT - time of w on the link) over the windows w, 2 w, 4 w, ... that end before it. RTT is twice the
link's latency. Over a path with real round trips and fresh connections the median
error against Linux's cubic was 1.0 % (against its BBR 2.6 %), and 49 % without slow start.

A window takes its time on the shared link, with others' transfers. So 20 users that download a model at once
over 50 Mbit/s wait for hardly any acknowledgement. With waits at each user's rate alone a download of 1 s was
0.2 s too long against live runs. If others crowd the link and a sender's round trip grows by an eighth, it
stops doubling (cubic's HyStart). Then it moves a window a round trip. Not counted: handshakes, the bytes of
acknowledgements, lost packets, and slow growth after HyStart.

With queues (`queue_s`) a round trip has their delays, and a window that a message has filled is at most the
path's bytes and its queue's. A connection that was idle for a timeout restarts with less: RFC 2861 halves
its window for each one, as Linux does (`tcp_slow_start_after_idle`, `tcp_cwnd_restart`); RFC 5681, section
4.1, to which RFC 9293 refers, takes the first window at once.

Ha and Rhee, "Taming the elephants: New TCP slow start", Computer Networks 55 (2011); net/ipv4/tcp_cubic.c.
"""

from typing import Annotated, Literal

from pydantic import Field

from simfl.config.blocks import Block, Count

HYSTART_SEGMENTS = 16
"""Segments of a window below which it doubles whatever its round trip is."""
HYSTART_NS = 4_000_000, 16_000_000
"""Minimum and maximum of the growth of a round trip that ends doubling; between them it is an eighth."""
LEAST_RTO_NS = 200_000_000
"""Minimum that Linux adds to a round trip before a sender counts as idle (`tcp_rto_min`)."""


class Tcp(Block):
    """TCP on a user's link, whose rates are then the wire's.

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
        # Rounded up in integers, without a float's 53 bits.
        return size_bytes + self.header_bytes * -(-size_bytes // self.mss)

    def stays_open(self, window_bytes: int, queued_ns: int, rtt_ns: int) -> bool:
        """Return True if a window stops doubling after the next one, by HyStart.

        Args:
            window_bytes: Bytes of this window.
            queued_ns: Nanoseconds that it took longer than at the link's own rate, as others crowd the link.
            rtt_ns: The path's round trip.

        >>> Tcp(slow_start="fresh").stays_open(28_960, 8_000_000, 60_000_000)
        True
        """
        minimum_ns, maximum_ns = HYSTART_NS
        # An eighth of the round trip between two bounds, as the kernel's `hystart_update` has it
        # (test_tcp.py: test_a_round_trip_that_grows_ends_the_doubling).
        late = queued_ns > max(minimum_ns, min(maximum_ns, rtt_ns // 8))
        return late and window_bytes >= HYSTART_SEGMENTS * self.mss


class Connection:
    """The sender of one direction of a user's link, and the bytes to which its window has opened."""

    __slots__ = ("_idle_since", "_rtt_ns", "_window", "tcp")

    def __init__(self, tcp: Tcp) -> None:
        self.tcp = tcp
        self.broke()

    def broke(self) -> None:
        """Start with a new connection: the user was offline, or lost."""
        self._window = self._first
        self._idle_since = self._rtt_ns = 0

    @property
    def _first(self) -> int:
        return self.tcp.window * self.tcp.mss

    def begin(self, size_bytes: int, now: int, rtt_ns: int) -> int:
        """Return the first window of a message in bytes; 0 if the window is open.

        Args:
            size_bytes: The message's size with its headers.
            now: Nanoseconds since the start of the run.
            rtt_ns: The path's round trip.
        """
        if self.tcp.slow_start == "never":
            return 0
        if self.tcp.slow_start == "fresh":
            return self._first
        # Each timeout since the last bit halves the window. A shift by 63 gives 0 for any window, and
        # Python's integers would shift by any number of days otherwise. At the end of a timeout it is not
        # over yet, hence the nanosecond less.
        rto_ns = max(rtt_ns, self._rtt_ns) + LEAST_RTO_NS
        halvings = min((max(1, now - self._idle_since) - 1) // rto_ns, 63)
        # Never below the first window, as in Linux's `tcp_cwnd_restart`.
        begins = max(self._first, self._window >> halvings)
        # The window grows by a segment for each that is acknowledged, but to at most twice the bytes that
        # were on their way, as on Linux.
        self._window = max(begins, min(begins + size_bytes, 2 * size_bytes))
        return begins

    def sent(self, now: int, rtt_ns: int = 0, path_bytes: int | None = None) -> None:
        """Record that the last bit of a message has left.

        Args:
            now: Nanoseconds since the start of the run.
            rtt_ns: Round trip with the queues on its way; 0 if none is modelled.
            path_bytes: Bytes that fit on the path and into its queue, if the message has filled both.
        """
        self._idle_since, self._rtt_ns = now, rtt_ns
        # A window that fills the queue loses packets, and grows no further.
        if path_bytes is not None:
            self._window = max(self._first, min(self._window, path_bytes))
