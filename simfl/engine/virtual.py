"""Virtual time: a SimPy environment whose clock counts integer nanoseconds."""

from __future__ import annotations

from collections.abc import Callable

import simpy

NS = 10**9


def nanoseconds(seconds: float) -> int:
    """Seconds as virtual time, rounded once."""
    return round(seconds * NS)


class Environment(simpy.Environment):
    """Time starts at 0 and only ever moves by integers; equal times keep the order of scheduling."""

    @property
    def now(self) -> int:
        """Nanoseconds since the start."""
        return int(self._now)

    def at(self, when_ns: int, then: Callable[[], None]) -> None:
        """Call back at a time, without a process."""
        event = self.timeout(when_ns - self.now)
        assert event.callbacks is not None
        event.callbacks.append(lambda _: then())
