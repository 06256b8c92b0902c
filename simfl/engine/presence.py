"""Who is online: a device is away for as long as there is a reason (its session is off, it was lost)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

import simpy

from simfl import trace as rows
from simfl.engine.network import Network
from simfl.engine.virtual import Environment

SESSION, LOST = "session", "lost"


class Presence:
    """Keeps the reasons, pauses and resumes links, and tells `left(user, why, row)` and
    `returned(user, row)`.
    """

    def __init__(
        self,
        env: Environment,
        trace: rows.Trace,
        network: Network,
        left: Callable[[int, str, int], None],
        returned: Callable[[int, int], None],
    ) -> None:
        self.env = env
        self.trace = trace
        self.network = network
        self.left = left
        self.returned = returned
        self._reasons: dict[int, set[str]] = {}

    def follow(self, user: int, changes: Iterable[tuple[int, bool]]) -> None:
        """Let a user come and go: (nanoseconds that a state lasts, whether online); the last one stays."""
        self.env.process(self._follow(user, changes))

    def _follow(self, user: int, changes: Iterable[tuple[int, bool]]) -> Generator[simpy.Event, Any, None]:
        for length, online in changes:
            (self.come if online else self.leave)(user, SESSION)
            yield self.env.timeout(length)

    def online(self, user: int) -> bool:
        """Whether a user's device is online."""
        return not self._reasons.get(user)

    @property
    def away(self) -> int:
        """How many users are offline."""
        return sum(bool(reasons) for reasons in self._reasons.values())

    def leave(self, user: int, why: str) -> None:
        """A device goes offline."""
        was_online = self.online(user)
        self._reasons.setdefault(user, set()).add(why)
        if was_online:
            row = self.trace.add(rows.Presence(user, False, self.env.now))
            self.left(user, why, row)  # first, as what is lost for good does not wait on a paused link
            for up in (True, False):
                self.network.link(user, up).pause()

    def come(self, user: int, why: str) -> None:
        """A device is online again, unless another reason keeps it away."""
        reasons = self._reasons.get(user, set())
        if why in reasons:
            reasons.discard(why)
            if not reasons:
                row = self.trace.add(rows.Presence(user, True, self.env.now))
                for up in (True, False):
                    self.network.link(user, up).resume()
                self.returned(user, row)
