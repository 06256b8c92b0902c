"""Links at the scenario's rates: bytes pass by the clock, and flows share a link max-min fairly.

The engine's link is a fluid; this is the same fluid in ticks. Bytes that fell due since the last tick pass at
the next one, so no error accumulates, and no byte is late by more than one tick. A tick ends at a message's
last byte, so that its time is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from simfl.engine.environment import Environment
from simfl.virtual_time import NS

TICK_NS = 4_000_000
"""Longest time between two ticks."""

Rate = Callable[[int], float]
"""Bit/s at a time, nanoseconds; infinite where a link is not shaped."""
Sink = Callable[[memoryview], object]
"""Receives bytes that have passed."""


class ShapedLink:
    """A link that flows share; for bytes that are put at one time, shares are computed once.

    Attributes:
        active: Flows with bytes that wait, in order.
    """

    def __init__(self, env: Environment, rate: Rate) -> None:
        self.env, self.rate = env, rate
        self.active: dict[ShapedFlow, None] = {}
        self._shares: dict[ShapedFlow, float] = {}
        """Bytes a nanosecond of each flow since the last tick."""
        self._since = 0
        self._due = -1

    def wake(self, flow: ShapedFlow) -> None:
        """Add a flow that has bytes to carry."""
        self.active[flow] = None
        self._tick_at(self.env.now)

    def _tick_at(self, due: int) -> None:
        # No tick is pending, or only a later one, which then finds that it was replaced.
        if self._due < self.env.now or due < self._due:
            self._due = due
            self.env.call_at(due, lambda: self._tick(due))

    def _tick(self, due: int) -> None:
        # An earlier tick replaced it. Calls of the environment cannot be withdrawn.
        if due != self._due:
            return
        self._due, since, self._since = -1, self._since, self.env.now
        # By the time that has passed, and not by the length of a tick: a late tick passes more bytes, so
        # lateness does not add up.
        for flow, share in self._shares.items():
            flow.let_through(share * (self.env.now - since))
        self.active = {flow: None for flow in self.active if flow.waiting}
        self._shares = self._shared_out()
        ends = [flow.awaited / share for flow, share in self._shares.items() if share > 0]
        if self.active:
            # Rounded down, so a tick may come just before an end; the next nanosecond follows then. At 0,
            # time would stand still.
            self._tick_at(self.env.now + max(1, min([TICK_NS, *map(int, ends)])))

    def _shared_out(self) -> dict[ShapedFlow, float]:
        """Return the bytes a nanosecond of each flow, by progressive filling."""
        now = self.env.now
        shares, left = dict[ShapedFlow, float](), self.rate(now)
        # The number decides between equal caps, as flows have no order. From the lowest cap on, each flow
        # gets at most an equal part of the rate that remains.
        capped = sorted((flow.cap(now), k, flow) for k, flow in enumerate(self.active))
        for k, (cap, _, flow) in enumerate(capped):
            share = min(cap, left / (len(capped) - k))
            left -= share
            shares[flow] = share / 8 / NS
        return shares


class PendingBytes(NamedTuple):
    """Bytes on their way."""

    data: memoryview
    """The bytes that have not passed."""
    on_sent: Callable[[], object] | None
    """Called when the last of them has passed, if given."""


class ShapedFlow:
    """One user's bytes through a link, in order.

    Args:
        link: The link, which others share.
        cap: Rate cap by the user's own link.
        sink: Called with bytes that have passed.
        queue_ns: Nanoseconds of the cap that its queue holds: these bytes have left the user.
    """

    def __init__(self, link: ShapedLink, cap: Rate, sink: Sink, queue_ns: int = 0) -> None:
        self.link, self.cap, self.sink, self.queue_ns = link, cap, sink, queue_ns
        self.waiting: deque[PendingBytes] = deque()
        self._through = 0.0
        """Bytes of the first waiting piece that may pass now; a fraction stays for the next tick."""

    @property
    def left(self) -> float:
        """Bytes that wait."""
        return sum(len(piece.data) for piece in self.waiting) - self._through

    @property
    def awaited(self) -> float:
        """Bytes until the next end of a piece with an `on_sent`, or until the end of all."""
        awaited = -self._through
        for piece in self.waiting:
            awaited += len(piece.data)
            if piece.on_sent is not None:
                break
        return awaited

    def put(self, data: bytes, on_sent: Callable[[], object] | None = None) -> None:
        """Queue bytes; `on_sent` is called when the last of them has passed."""
        self.waiting.append(PendingBytes(memoryview(data), on_sent))
        # A flow without limits passes its bytes at once, without a tick.
        if min(self.link.rate(self.link.env.now), self.cap(self.link.env.now)) == float("inf"):
            self.let_through(self.left)
        # If other bytes waited before these, the flow is active already.
        elif len(self.waiting) == 1:
            self.link.wake(self)

    def let_through(self, size_bytes: float) -> None:
        """Let the first waiting bytes pass."""
        self._through += size_bytes
        while self.waiting:
            data, on_sent = self.waiting[0]
            # Whole bytes; a fraction stays for the next tick, so no rate is too low on average.
            count = min(len(data), int(self._through))
            self._through -= count
            if count:
                self.sink(data[:count])
            if count < len(data):
                self.waiting[0] = PendingBytes(data[count:], on_sent)
                return
            self.waiting.popleft()
            if on_sent is not None:
                # `on_sent` may cut the flow, or put more bytes: the loop reads `waiting` anew.
                on_sent()
        # An idle link saves nothing up for later bytes.
        self._through = 0.0

    def flush(self) -> None:
        """Let all waiting bytes pass at once; no `on_sent` is called."""
        for piece in self.waiting:
            self.sink(piece.data)
        self.waiting.clear()
        self._through = 0.0

    def cut(self) -> None:
        """Drop the bytes that have not left: they have not passed, and the queue does not hold them."""
        # Without a queue the cap may be infinite.
        left = int(self.queue_ns * self.cap(self.link.env.now) / 8 / NS) if self.queue_ns else 0
        waiting, self.waiting = self.waiting, deque()
        for data, on_sent in waiting:
            if left < len(data):
                if left:
                    self.waiting.append(PendingBytes(data[:left], None))
                break
            left -= len(data)
            self.waiting.append(PendingBytes(data, on_sent))
        if not self.waiting:
            self._through = 0.0
