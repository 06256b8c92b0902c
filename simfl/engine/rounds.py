"""Synchronous rounds: select, run the machines until an aggregate or an abort, repeat.

A user is in flight while its upload of an earlier round is on its way, or it still trains for that. It is not
selected then.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np

from simfl.engine.life import Waits
from simfl.engine.server_side import ServerSide
from simfl.engine.user_round import UserRound
from simfl.protocols.contracts import round_server
from simfl.protocols.machine import SERVER, Result, Subject
from simfl.trace import rows
from simfl.world.participation import Participation, Users


class Rounds(ServerSide):
    """One protocol's server, round by round."""

    begun = -1
    """The latest round that has begun."""

    def main(self) -> Waits:
        """Begin round after round; each begins as the one before it has closed."""
        self.tasks: dict[tuple[int, int], UserRound] = {}
        self.history = Participation(self.config.users)
        self.users.follow_all()
        # `follow_all` has taken users offline that are so from the start. Calls that this requested for time
        # 0 come before the first selection.
        yield 0
        while not self.done:
            self.start = self.env.now
            # An event and not a call: the next round begins after the other effects of the step that closes
            # this one.
            self.closed = self.env.event()
            chosen = self._select()
            if not chosen:
                # As long as a server with users would wait for its first answers. Then it selects once more,
                # and without users the round aborts (test_cohorts.py:
                # test_a_skipped_round_lasts_as_long_as_the_server_waited).
                yield self.config.deadlines_ns[self.runtime.setup.protocol.round_timers[0]]
                chosen = self._select()
            self._begin(chosen or [])
            yield self.closed

    def _available(self) -> Users:
        """Return the users that can be selected, ascending."""
        in_flight = [task.user for task in self.tasks.values() if self.users.in_flight(task)]
        available = self.users.online()
        available[in_flight] = False
        if self.config.in_round is not None:
            available &= self.config.in_round(self.round)
        return np.flatnonzero(available)

    def _shortage(self) -> str:
        """Return the reason for which too few users could be selected."""
        shortage = f"{len(self._available())} of {self.config.users} users available"
        busy = sum(map(self.users.in_flight, self.tasks.values()))
        if not busy:
            return shortage
        aborts = (row for row in reversed(self.trace) if isinstance(row, rows.Aborted))
        causes = (f" (round {a.round}: {a.reason})" for a in aborts if not a.reason.startswith("selection:"))
        return f"{shortage}; {busy} still work for an earlier round{next(causes, '')}"

    def _select(self) -> list[int] | None:
        available, meter = self._available(), self.runtime.meter
        if meter is not None and meter.batteries is not None:
            self.history.battery = meter.batteries.levels()
        return self.config.select(available, self.history, self.round)

    def _begin(self, chosen: list[int]) -> None:
        index, setup, users = self.round, self.runtime.setup, self.users
        cause, self.begun = self.trace.add(rows.Begin(index, self.start, tuple(chosen))), index
        if not chosen:
            self._abort_round(f"selection: {self._shortage()}", cause)
            return
        self.history.append(chosen)
        entropy = setup.entropy(SERVER, index)
        server = round_server(setup.server(chosen, setup.in_round(index), self.runtime.ops, entropy))
        server.quorum = self.config.quorum
        # Planned before the round begins: losses depend on its number and cohort, and not on what happens in
        # it.
        plans = setup.losses.in_round(index, chosen)
        # A task stays while one of its messages is on its way, which has to find it.
        for key, task in tuple(self.tasks.items()):
            if not users.in_flight(task):
                users.forget(self.tasks.pop(key))
        weights = self.host.weights
        for user in chosen:
            task = UserRound.begin(setup, user, index, server, weights, plans.get(user))
            self.tasks[user, index] = task
            users.begin(task)
        run = partial(self.host.open_round, server, chosen)
        self.call(server, "start", None, cause, setup.first_phase, run=run)

    def stall(self, why: str) -> None:
        # Its server still waited for users. Each End row has a Begin row before it.
        if self.begun < self.round:
            self.trace.add(rows.Begin(self.round, self.start, ()))
        super().stall(why)

    def members(self, result: Result) -> list[tuple[UserRound, float]]:
        return [(self.tasks[m.user, self.round], m.factor) for m in result.members]

    def using_model(self) -> Iterable[UserRound]:
        return filter(self.users.in_flight, self.tasks.values())

    def task_of(self, user: int, index: int, subject: Subject) -> UserRound | None:
        return self.tasks.get((user, index))

    @property
    def awaited(self) -> str:
        return "the round did not end"

    def _on_round_closed(self, step: int) -> None:
        for task in self.tasks.values():
            if not task.is_over:
                self.users.end_task(task.user, task)
        self.closed.succeed()
