"""Virtual time: a SimPy environment whose clock counts integer nanoseconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

import simpy
from simpy.events import NORMAL

NS = 10**9


def nanoseconds(seconds: float) -> int:
    """Seconds as virtual time, rounded once."""
    return round(seconds * NS)


class Environment(simpy.Environment):
    """Time starts at 0 and only ever moves by integers; equal times keep the order of scheduling.

    Most of what happens is a plain call at a time. Such calls have a heap of their own beside SimPy's, with
    its order and its numbers: a call costs a fraction of an event.
    """

    now: int = 0
    """Nanoseconds since the start."""

    def __init__(self) -> None:
        super().__init__()
        self._soon: deque[Callable[[], None]] = deque()
        self._calls: list[tuple[int, int, int, Callable[[], None]]] = []

    def at(self, when_ns: int, then: Callable[[], None]) -> None:
        """Call back at a time, which is now or later."""
        if when_ns < self.now:
            raise ValueError(f"{when_ns} ns is before now, {self.now} ns")
        heappush(self._calls, (when_ns, NORMAL, next(self._eid), then))

    def soon(self, then: Callable[[], None]) -> None:
        """Call back now, once what is going on is over and before all else, as SimPy's urgent events do."""
        self._soon.append(then)

    def step(self) -> None:
        """Do the next thing."""
        if self._soon:
            self._soon.popleft()()
        elif self._calls and (not self._queue or self._calls[0][:3] < self._queue[0][:3]):
            self.now, _, _, then = heappop(self._calls)
            self._now = self.now
            then()
        else:
            self.now = int(self._queue[0][0]) if self._queue else self.now
            super().step()

    def peek(self) -> simpy.core.SimTime:
        """When that is; infinity if there is none."""
        if self._soon:
            return self._now
        if not self._calls:
            return super().peek()
        return min(self._calls[0][0], self._queue[0][0]) if self._queue else self._calls[0][0]
