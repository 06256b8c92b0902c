"""Presence of users and of their connections.

A device is away for as long as there is a reason: its session is off, or it was lost. Coming and going is an
event, with a row, only while a user is followed. Of one that is not, its days answer when somebody looks: so
idle users cost nothing, however many they are and however often they come and go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from simfl.engine.environment import Environment
from simfl.engine.life import Life, Waits
from simfl.protocols.contracts import AnyServer
from simfl.trace import rows
from simfl.trace.codes import UpdateId
from simfl.world.availability import FOR_EVER, OnlineSchedule, State

if TYPE_CHECKING:
    from simfl.engine.server_side import ServerSide
    from simfl.engine.sides import Network

SESSION, LOST, BATTERY = "session", "lost", "battery"
WHY = {SESSION: "went offline", LOST: "was lost", BATTERY: "ran empty"}
"""The reasons to be away, and what is said of a loss by one."""


class PresenceTracker:
    """Keeps the reasons, pauses and resumes links, and calls back on each change.

    Attributes:
        days: A user's state at a time and until when it lasts; None where it never changes.
        on_offline: Called with a user, the reason and the row as a device goes offline.
        on_online: Called with a user and the row as its device is back.
        is_idle: True for a user on whose coming and going nothing depends: it is not followed beyond its next
            change.
        stays: Called where the next session or slot of a followed user leaves it as it is.
        powered: The state of a user's battery, where there are any.
    """

    powered: Callable[[int], State] | None = None

    def __init__(
        self,
        env: Environment,
        trace: rows.Trace,
        network: Network,
        days: OnlineSchedule | None,
        on_offline: Callable[[int, str, int], None],
        on_online: Callable[[int, int], None],
        is_idle: Callable[[int], bool],
        stays: Callable[[], None] = lambda: None,
    ) -> None:
        self.env = env
        self.trace = trace
        self.network = network
        self.days = days
        self.on_offline = on_offline
        self.on_online = on_online
        self.is_idle = is_idle
        self.stays = stays
        self.away: dict[int, set[str]] = {}
        """Users known to be offline, with the reasons."""
        self._followed: set[int] = set()

    def follow(self, user: int) -> None:
        """Begin to follow a user's sessions."""
        if self.days is not None and user not in self._followed:
            self._followed.add(user)
            Life(self.env, self._come_and_go(user, self.env.now), at_once=True)

    def _come_and_go(self, user: int, until: int) -> Waits:
        """Take a followed user through its sessions, the next of which begins at `until`."""
        assert self.days is not None
        while until < FOR_EVER:
            if until > self.env.now:
                yield until - self.env.now
            online, until = self.days(user, self.env.now)
            idle = user not in self.away and self.is_idle(user)
            if BATTERY in self.away.get(user, ()) or (idle and not online):
                self._followed.discard(user)  # its sessions mean nothing before it is charged, or picked
                return
            if online is (SESSION not in self.away.get(user, ())):
                self.stays()
            elif online:
                self.remove_reason(user, SESSION)
            else:
                self.add_reason(user, SESSION)

    def state_of(self, user: int) -> State:
        """Return the state of a user's device, and until when it is certain to last."""
        if self.days is None or user in self.away or user in self._followed:
            state = user not in self.away, FOR_EVER
        else:
            state = self.days(user, self.env.now)
        if self.powered is None or not state[0]:
            return state
        on, until = self.powered(user)
        return on, min(until, state[1]) if on else until  # its sessions mean nothing while it is empty

    def online(self, user: int) -> bool:
        return self.state_of(user)[0]

    def add_reason(self, user: int, why: str) -> None:
        """Take a device offline for a reason."""
        was_online = user not in self.away
        self.away.setdefault(user, set()).add(why)
        if was_online:
            row = self.trace.add(rows.Presence(user, False, self.env.now))
            self.on_offline(user, why, row)  # first, as what is lost for good does not wait on a paused link
            self.network.pause(user)

    def remove_reason(self, user: int, why: str) -> None:
        """Remove a reason; a device without any is online again."""
        reasons = self.away.get(user, set())
        if why in reasons:
            reasons.discard(why)
            if not reasons:
                del self.away[user]
                row = self.trace.add(rows.Presence(user, True, self.env.now))
                self.network.resume(user)
                self.on_online(user, row)

    def on_recharged(self, user: int) -> None:
        """Bring back a device that ran empty; it is online if its session is on."""
        if self.days is not None and user not in self._followed:
            self._followed.add(user)
            online, until = self.days(user, self.env.now)
            reasons = self.away[user]
            reasons.discard(SESSION) if online else reasons.add(SESSION)
            Life(self.env, self._come_and_go(user, until), at_once=True)
        self.remove_reason(user, BATTERY)


class Disconnections:
    """Broken connections of which the server has not been notified yet."""

    def __init__(self, server: ServerSide) -> None:
        self.server = server
        self._untold: dict[int, list[Callable[[], None]]] = {}

    def report(self, user: int, update: UpdateId | None, machine: AnyServer, phase: str, row: int) -> None:
        """Notify `machine` of a broken connection, if the scenario's transport does.

        Args:
            user: Whose connection broke.
            update: Update that the user was working on, if any.
            machine: The server's.
            phase: Phase of the notification's step.
            row: Cause in the trace.
        """
        server = self.server
        if server.config.disconnect_ns is None:
            return
        settling_ns = server.network.link(user, up=True).settling_ns
        later = server.env.now + max(server.config.disconnect_ns, settling_ns)
        cause = server.trace[row]
        index = cause.round if isinstance(cause, rows.Lost) else server.round
        more = {"subject": update, "round": index}
        self.notify_at(later, user, partial(server.call, machine, "gone", user, row, phase, **more))

    def notify_at(self, when_ns: int, user: int, notice: Callable[[], None]) -> None:
        """Notify the server at a time, or sooner if the user is back."""
        self._untold.setdefault(user, []).append(notice)
        Life(self.server.env, self._notice(when_ns, user, notice), at_once=True)

    def _notice(self, when_ns: int, user: int, notice: Callable[[], None]) -> Waits:
        yield when_ns - self.server.env.now
        self.notify(user, notice)

    def notify(self, user: int, *notices: Callable[[], None]) -> None:
        """Notify the server of these broken connections of a user, or of all, once each."""
        for notice in notices or tuple(self._untold.get(user, ())):
            if notice in self._untold.get(user, ()):
                self._untold[user].remove(notice)
                notice()
