"""The needs of each side of a session of the other: in a simulation that side, in a live run a connection.

Messages go over a `Network`, which is virtual or of sockets. All else that one side learns of the other is
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
        """A user went offline: what is for it waits."""

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
        """A user is lost in its part, by this row."""

    def offline(self, user: int, why: str, row: int, was_lost: bool) -> None:
        """A user's device went offline, by this row; was_lost: amid a part."""

    def online(self, user: int, row: int) -> None:
        """A user's device is back, by this row."""

    def count_return(self, stays: bool = False) -> None:
        """Count a user that came back, or whose next session or slot leaves it as it is."""


class Users(Protocol):
    """The users, as the server's side reaches them."""

    presence: PresenceTracker

    def follow_all(self) -> None:
        """Let all users come and go."""

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
        """The server wants no more of a user's part: its round has closed, or it was given up."""

    def forget(self, task: UserRound) -> None:
        """The server has dealt with a part, or nothing of it is under way any more."""
