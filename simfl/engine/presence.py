"""Who is online: a device is away for as long as there is a reason (its session is off, it was lost).

A user's coming and going is an event, with a row, only while the user is followed. Of one that is not, its
days answer when somebody looks: so idle users cost nothing, however many they are and however often they
come and go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simfl.engine.environment import Environment
from simfl.engine.links import Network
from simfl.population.availability import FOR_EVER, Days, State
from simfl.results import trace as rows

SESSION, LOST = "session", "lost"


class Presence:
    """Keeps the reasons, pauses and resumes links, and tells `left(user, why, row)` and
    `returned(user, row)`.

    days: a user's state at a time and until when it lasts; None where it never changes. resting: whether
    nothing depends on a user's coming and going: at its next change it is followed no more.
    """

    def __init__(
        self,
        env: Environment,
        trace: rows.Trace,
        network: Network,
        days: Days | None,
        left: Callable[[int, str, int], None],
        returned: Callable[[int, int], None],
        resting: Callable[[int], bool],
    ) -> None:
        self.env = env
        self.trace = trace
        self.network = network
        self.days = days
        self.left = left
        self.returned = returned
        self.resting = resting
        self.away: dict[int, set[str]] = {}
        """Who is known to be offline, and why."""
        self._followed: set[int] = set()

    def follow(self, user: int) -> None:
        """Let a user come and go, from now on."""
        if self.days is not None and user not in self._followed:
            self._followed.add(user)
            self._change(user)

    def _change(self, user: int) -> None:
        assert self.days is not None
        online, until = self.days(user, self.env.now)
        if online:
            self.come(user, SESSION)
        elif user not in self.away and self.resting(user):
            self._followed.discard(user)
            return
        else:
            self.leave(user, SESSION)
        if until < FOR_EVER:
            self.env.at(until, partial(self._change, user))

    def look(self, user: int) -> State:
        """Whether a user's device is online, and until when that is certain, unless it is followed anyway."""
        if self.days is None or user in self.away or user in self._followed:
            return user not in self.away, FOR_EVER
        return self.days(user, self.env.now)

    def online(self, user: int) -> bool:
        """Whether a user's device is online."""
        return self.look(user)[0]

    def leave(self, user: int, why: str) -> None:
        """A device goes offline."""
        was_online = user not in self.away
        self.away.setdefault(user, set()).add(why)
        if was_online:
            row = self.trace.add(rows.Presence(user, False, self.env.now))
            self.left(user, why, row)  # first, as what is lost for good does not wait on a paused link
            self.network.pause(user)

    def come(self, user: int, why: str) -> None:
        """A device is online again, unless another reason keeps it away."""
        reasons = self.away.get(user, set())
        if why in reasons:
            reasons.discard(why)
            if not reasons:
                del self.away[user]
                row = self.trace.add(rows.Presence(user, True, self.env.now))
                self.network.resume(user)
                self.returned(user, row)
