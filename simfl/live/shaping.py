"""Links as slow as the scenario says: bytes are let through by the clock, and shared max-min fairly.

The engine's link is a fluid; this is the same fluid in ticks. Bytes that fell due since the last tick
are let through at the next one, so nothing drifts, and no byte is late by more than one tick. A message's
last byte has a tick of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from simfl.engine.environment import Environment
from simfl.virtual_time import NS

TICK_NS = 4_000_000

Rate = Callable[[int], float]
"""Bit/s at a time, nanoseconds; infinite where nothing is shaped."""
Sink = Callable[[memoryview], object]


class Link:
    """A link that flows share. Whatever is put at one time is shared out once."""

    def __init__(self, env: Environment, rate: Rate) -> None:
        self.env, self.rate = env, rate
        self.active: dict[Flow, None] = {}
        self._shares: dict[Flow, float] = {}
        """Bytes a nanosecond of each flow since the last tick."""
        self._since = 0
        self._due = -1

    def wake(self, flow: Flow) -> None:
        """Let a flow take part that has something to carry."""
        self.active[flow] = None
        self._tick_at(self.env.now)

    def _tick_at(self, due: int) -> None:
        if self._due < self.env.now or due < self._due:
            self._due = due
            self.env.call_at(due, lambda: self._tick(due))

    def _tick(self, due: int) -> None:
        if due != self._due:  # an earlier one took its place
            return
        self._due, since, self._since = -1, self._since, self.env.now
        for flow, share in self._shares.items():
            flow.let_through(share * (self.env.now - since))
        self.active = {flow: None for flow in self.active if flow.waiting}
        self._shares = self._shared_out()
        ends = [flow.awaited / share for flow, share in self._shares.items() if share > 0]
        if self.active:
            self._tick_at(self.env.now + max(1, min([TICK_NS, *map(int, ends)])))

    def _shared_out(self) -> dict[Flow, float]:
        """Return the bytes a nanosecond of each flow, by progressive filling."""
        now = self.env.now
        shares, left = dict[Flow, float](), self.rate(now)
        capped = sorted((flow.cap(now), k, flow) for k, flow in enumerate(self.active))
        for k, (cap, _, flow) in enumerate(capped):
            share = min(cap, left / (len(capped) - k))
            left -= share
            shares[flow] = share / 8 / NS
        return shares


class Piece(NamedTuple):
    """Bytes on their way.

    Attributes:
        then: Called as they are through; None to call nothing.
    """

    data: memoryview
    then: Callable[[], object] | None


class Flow:
    """One user's bytes through a link, in order.

    Args:
        link: The link, which others share.
        cap: Rate cap by the user's own link.
        sink: Called with bytes that have passed.
    """

    def __init__(self, link: Link, cap: Rate, sink: Sink) -> None:
        self.link, self.cap, self.sink = link, cap, sink
        self.waiting: deque[Piece] = deque()
        self._through = 0.0
        """The part of the first waiting piece that is through."""

    @property
    def left(self) -> float:
        """Bytes that wait."""
        return sum(len(piece.data) for piece in self.waiting) - self._through

    @property
    def awaited(self) -> float:
        """Bytes until the next end of a piece that something waits for, or until all are through."""
        awaited = -self._through
        for piece in self.waiting:
            awaited += len(piece.data)
            if piece.then is not None:
                break
        return awaited

    def put(self, data: bytes, then: Callable[[], object] | None = None) -> None:
        """Queue bytes; `then` is called when the last of them is through."""
        self.waiting.append(Piece(memoryview(data), then))
        if min(self.link.rate(self.link.env.now), self.cap(self.link.env.now)) == float("inf"):
            self.let_through(self.left)
        elif len(self.waiting) == 1:
            self.link.wake(self)

    def let_through(self, more: float) -> None:
        self._through += more
        while self.waiting:
            data, then = self.waiting[0]
            count = min(len(data), int(self._through))
            self._through -= count
            if count:
                self.sink(data[:count])
            if count < len(data):
                self.waiting[0] = Piece(data[count:], then)
                return
            self.waiting.popleft()
            if then is not None:
                then()  # which may cut the flow, or put more
        self._through = 0.0

    def flush(self) -> None:
        """Let all that waits through at once; no `then` is called."""
        for piece in self.waiting:
            self.sink(piece.data)
        self.cut()

    def cut(self) -> None:
        """Drop what has not passed."""
        self.waiting.clear()
        self._through = 0.0
