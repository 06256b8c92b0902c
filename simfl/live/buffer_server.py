"""The server of a live run over a buffer: the engine's session, whose users are at the other ends of sockets.

It picks users, runs the machine and closes aggregations as in virtual time; it is the same code. A user whose
connection ends is away until it says that it is back; what is for it waits in its mailbox.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simfl.engine.buffered import BufferedSession
from simfl.engine.life import Waits
from simfl.engine.presence import LOST
from simfl.engine.user_round import UserRound
from simfl.live.connection import LiveLink
from simfl.live.mailbox import Mailbox
from simfl.live.parts import Parts
from simfl.live.wire import Codec, Envelope, Malformed
from simfl.protocols.machine import UpdateId
from simfl.virtual_time import NS


class LiveBufferServer(Parts, BufferedSession):
    """The server's session of a live run over a buffer. watching: a connection broke, and from then on it is
    checked every second that something can still happen in the run."""

    watching = False

    def outward(self, codec: Codec, user: int) -> LiveLink:
        return Mailbox(self, codec, user)

    def key(self, task: UserRound) -> UpdateId | None:
        return task.id

    def parts_of(self, user: int) -> int:
        return self.cycles[user]

    def _begin(self, user: int, cause: int) -> None:
        super()._begin(user, cause)
        self.ask(self.current[user])

    def on_given_up(self, users: Iterable[int], update: UpdateId | None) -> None:
        task = None if update is None else self.tasks.get(update)
        super().on_given_up(users, update)
        if task is not None:
            self.recall(task)

    def free(self, user: int, index: int) -> None:
        super().free(user, index)
        if self.env.origin is not None:
            self._rest(user)
            self._pick(self.server.last)

    def part_of(self, user: int, envelope: Envelope) -> UserRound | None:
        update = envelope.message.subject
        if self.env.origin is None or envelope.round > self.round:
            raise Malformed(f"{envelope.message.kind}: of round {envelope.round}, which is not yet")
        if not isinstance(update, UpdateId):
            return None
        task = self.current.get(user)
        return task if task is not None and task.id == update else self.task_of(user, envelope.round, update)

    def heard(self, user: int, envelope: Envelope) -> None:
        if not self.done:
            super().heard(user, envelope)

    def refusal_round(self) -> int:
        return min(self.round, self.world.rounds - 1) if self.env.origin is not None else -1

    # -- coming and going
    def main(self) -> Waits:
        """Run as the session's own process, in which those have left who are offline from the start."""
        beginning = super().main()
        begun = next(beginning)
        for user in self.absent:
            self.presence.leave(user, LOST)
        yield begun
        yield from beginning

    def gone(self, user: int) -> None:
        if self.env.origin is None or self.done or user in self.presence.away:
            return
        task = self.current.get(user)
        if task is not None and not task.delivered:
            self.drop(task)
            self.broke_off(task)
            self.presence.leave(user, LOST)
        else:
            self.presence.leave(user, LOST)
            row = len(self.trace) - 1
            self.disconnections.report(user, None, self.machine, self.first_phase, row)
        if not self.watching:
            self.watching = True
            self._look_out()

    def back(self, user: int) -> None:
        """It says first what it has."""

    def online(self, user: int, now: bool) -> None:
        self._box(user).online(now)

    def on_lost(self, task: UserRound) -> None:
        """The server itself loses a user that uploaded in vain, by ending its connection."""
        self.drop(task)
        self.dismiss(task.user)
        self.presence.leave(task.user, LOST)

    def acknowledged(self, user: int, count: int) -> None:
        self._box(user).acknowledge(count)
        if user in self.presence.away and not self.done:
            self.presence.come(user, LOST)

    def _box(self, user: int) -> Mailbox:
        box: Any = self.network.link(user, up=False)
        assert isinstance(box, Mailbox)
        return box

    def _look_out(self) -> None:
        """Stop a run in which nothing can happen any more, as processes are gone that would have to act."""
        returning = any(user in self.presence.away for user in self._lines())
        if self.env.peek() == float("inf") and not returning:
            self.stall(
                f"nothing left that could happen, {len(self.peers)} of {self.world.users} users online"
            )
        elif not self.done:
            self.env.at(self.env.now + NS, self._look_out)

    # -- the end
    def stall(self, why: str) -> None:
        super().stall(why)
        self.server.power(False)

    def on_round_closed(self, step: int) -> None:
        super().on_round_closed(step)
        if self.done:  # what comes later is of no round
            self.server.power(False)
