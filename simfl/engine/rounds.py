"""Synchronous rounds: select, run the machines until an aggregate or an abort, repeat.

A user whose upload of an earlier round is still on its way, or who still trains for it, is in flight and
is not selected again.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np

from simfl.engine.life import Waits
from simfl.engine.presence import WHY
from simfl.engine.session import Session
from simfl.engine.user_round import UserRound
from simfl.protocols.contracts import round_server
from simfl.protocols.machine import SERVER, Result, Subject
from simfl.results import trace as rows
from simfl.selection.participation import Participation


class RoundSession(Session):
    """One protocol, round by round."""

    def main(self) -> Waits:
        """Begin round after round; each begins as the one before it has closed."""
        self.tasks: dict[tuple[int, int], UserRound] = {}
        self.history = Participation(self.world.users)
        self.begun = -1
        self.follow_users()
        yield 0  # who is offline from the start has left by now
        while not self.done:
            self.start = self.env.now
            self.closed = self.env.event()
            chosen = self._select()
            if not chosen:  # wait as long as for the first answers, and ask once more
                yield self.world.deadlines_ns[self.machines.kind.round_timers[0]]
                chosen = self._select()
            self._begin(chosen or [])
            yield self.closed

    def _available(self) -> list[int]:
        drawn = self.world.in_round
        online = np.ones(self.world.users, bool) if drawn is None else drawn(self.round)
        flying = {task.user for task in self.tasks.values() if self.working(task)}
        return [
            user
            for user in range(self.world.users)
            if online[user] and self.presence.online(user) and user not in flying
        ]

    def shortage(self) -> str:
        """Return the reason for which too few users could be selected."""
        return f"{len(self._available())} of {self.world.users} users available"

    def _select(self) -> list[int] | None:
        available = self._available()
        if self.meter is not None and self.meter.batteries is not None:
            self.history.battery = self.meter.batteries.levels()
        return self.world.select(available, self.history, self.round)

    def _begin(self, chosen: list[int]) -> None:
        index, params = self.round, self.machines.in_round(self.round)
        cause, self.begun = self.trace.add(rows.Begin(index, self.start, tuple(chosen))), index
        if not chosen:
            self.abort_round(f"selection: {self.shortage()}", cause)
            return
        self.history.append(chosen)
        own = self.machines.entropy(SERVER, index)
        server = round_server(self.machines.server(chosen, params, self.ops, own))
        server.quorum = self.world.quorum
        plans = self.machines.losses.in_round(index, chosen)
        self.tasks = {key: task for key, task in self.tasks.items() if self.working(task)}
        for user in chosen:
            self.tasks[user, index] = self.machines.user_round(
                user, params, self.ops, server, self.host.weights, plans.get(user)
            )
            if self.meter is not None:
                self.meter.join(user)
        run = partial(self.host.open_round, server, chosen)
        self.at_server(server, "start", None, cause, self.first_phase, run=run)

    def stall(self, why: str) -> None:
        if self.begun < self.round:  # it still waited for users
            self.trace.add(rows.Begin(self.round, self.start, ()))
        super().stall(why)

    # -- what a session asks
    def members(self, result: Result) -> list[tuple[UserRound, float]]:
        return [(self.tasks[m.user, self.round], m.factor) for m in result.members]

    def at_work(self) -> Iterable[UserRound]:
        return filter(self.working, self.tasks.values())

    def on_round_closed(self, step: int) -> None:
        if self.meter is not None:
            self.meter.leave_all()
        self.closed.succeed()

    def went_offline(self, user: int, why: str, row: int) -> None:
        for task in [t for t in self.tasks.values() if t.user == user]:
            if task.round == self.round or self.working(task):  # not where it has done all it had to
                self.lose(task, task.phase, WHY[why], row)
        self.network.link(user, up=False).cut()  # no mailbox: a round that it is lost from asks no more of it

    def came_online(self, user: int, row: int) -> None:
        self.disconnections.tell(user)  # a new connection tells that the old one broke
        self.count_return()

    @property
    def awaited(self) -> str:
        return "the round did not end"

    def task_of(self, user: int, index: int, subject: Subject) -> UserRound | None:
        return self.tasks.get((user, index))
