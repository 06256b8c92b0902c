"""Virtual time: a SimPy environment whose clock counts integer nanoseconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import simpy

NS = 10**9


def nanoseconds(seconds: float) -> int:
    """Seconds as virtual time, rounded once."""
    return round(seconds * NS)


class Environment(simpy.Environment):
    """Time starts at 0 and only ever moves by integers; equal times keep the order of scheduling."""

    def __init__(self) -> None:
        super().__init__()
        self._next: deque[Callable[[], None]] = deque()

    @property
    def now(self) -> int:
        """Nanoseconds since the start."""
        return int(self._now)

    def at(self, when_ns: int, then: Callable[[], None]) -> None:
        """Call back at a time, without a process."""
        event = simpy.Timeout(self, when_ns - int(self._now))
        assert event.callbacks is not None
        event.callbacks.append(lambda _: then())

    def soon(self, then: Callable[[], None]) -> None:
        """Call back now, once what is going on is over and before all else: an urgent event of SimPy,
        which costs as much as a timeout."""
        self._next.append(then)

    def step(self) -> None:
        """Do the next thing."""
        if self._next:
            self._next.popleft()()
        else:
            super().step()

    def peek(self) -> simpy.core.SimTime:
        """When that is; infinity if there is none."""
        return self._now if self._next else super().peek()
