"""Interfaces between the two sides of a session: in a simulation direct calls, in a live run a connection.

Messages pass a `Network`, which is virtual or of sockets. All else that one side learns of the other is
here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from simfl.engine.presence import PresenceTracker

if TYPE_CHECKING:
    from simfl.engine.links import Transmission
    from simfl.engine.user_side import UserRound


class Link(Protocol):
    """One direction of a user's link."""

    @property
    def settling_ns(self) -> int:
        """Time until all that has left has arrived, at least a latency."""
        ...

    def send(self, transmission: Transmission, /) -> None: ...

    def cut(self) -> None:
        """Drop what has not left yet."""


class Network(Protocol):
    """The links between users and the server."""

    def link(self, user: int, up: bool) -> Link: ...

    def pause(self, user: int) -> None:
        """Queue what is for a user that went offline."""

    def resume(self, user: int) -> None: ...

    def busy(self, user: int) -> bool:
        """Return True if anything is on its way from or to a user, or waits."""
        ...

    def close(self) -> None: ...


class Receiver(Protocol):
    """A side, as messages reach it."""

    def arrived(self, transmission: Transmission) -> None:
        """Take a message, a latency after its last bit has left; of a lost user maybe half of one."""


class Server(Protocol):
    """The server, as the users' side reaches it."""

    def lost(self, task: UserRound, phase: str, row: int) -> None:
        """Act on a user that is lost in its task, by this row."""

    def offline(self, user: int, why: str, row: int, was_lost: bool) -> None:
        """Act on a user's device that went offline, by this row; was_lost: in a task."""

    def online(self, user: int, row: int) -> None:
        """Act on a user's device that is back, by this row."""

    def count_return(self, stays: bool = False) -> None:
        """Count a user that came back, or whose next session or slot leaves it as it is."""


class Users(Protocol):
    """The users, as the server's side reaches them."""

    presence: PresenceTracker

    def follow_all(self) -> None:
        """Follow the sessions of all users."""

    def online(self, user: int) -> bool:
        """Return True for a user that can be selected."""
        ...

    def begin(self, task: UserRound) -> None:
        """Begin a user's part, in a round or in the cycle of an update."""

    def in_flight(self, task: UserRound) -> bool:
        """Return True while something is on its way from or to a user, or it works."""
        ...

    def lose(self, task: UserRound, phase: str, why: str, cause: int) -> None:
        """Lose a user whose upload is not counted."""

    def over(self, user: int, task: UserRound | None) -> None:
        """End a user's task: its round has closed, or the server gave it up."""

    def forget(self, task: UserRound) -> None:
        """Drop a task that the server has processed, or that has nothing under way."""
