"""Broken connections, of which the transport tells the server some time after a user was lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from simfl.results.trace import Lost
from simfl.results.trace_codes import UpdateId

if TYPE_CHECKING:
    from simfl.engine.session import Session


class Disconnections:
    """The connections of a session that broke and of which the server has not heard yet."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._untold: dict[int, list[Callable[[], None]]] = {}

    def report(self, user: int, update: UpdateId | None, machine: Any, phase: str, row: int) -> None:
        """Let the transport tell `machine` that a connection broke, if the scenario's transport does.

        update: the one that the user was working on, if any; row: the cause in the trace.
        """
        session = self.session
        if session.world.disconnect_ns is None:
            return
        settling_ns = session.network.link(user, up=True).settling_ns
        later = session.env.now + max(session.world.disconnect_ns, settling_ns)
        cause = session.trace[row]
        index = cause.round if isinstance(cause, Lost) else session.round
        more = {"subject": update, "round": index}
        notice = partial(session.at_server, machine, "gone", user, row, phase, **more)
        self._untold.setdefault(user, []).append(notice)
        session.env.at(later, lambda: self.tell(user, notice))

    def tell(self, user: int, *notices: Callable[[], None]) -> None:
        """Tell the server of these broken connections of a user, or of all, once each."""
        for notice in notices or tuple(self._untold.get(user, ())):
            if notice in self._untold.get(user, ()):
                self._untold[user].remove(notice)
                notice()
