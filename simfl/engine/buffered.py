"""Buffered asynchronous runs: each user cycles on its own; arrivals and staleness are what comes of it.

    idle (online) --picked--> in flight: downloads, trains, uploads --the server has it--> idle again,
    once its update has left the buffer

The server picks at random among the idle users that its machine admits, up to the scenario's
concurrency; nobody knows in advance when an update will come. A lost user is offline for a while; what
is sent to an offline user waits in its mailbox (its paused link), first in first out.

Where idle users are not connected, nobody follows their coming and going: they are picked from all who are
not known to be away, and one that is found to be offline is out of the pool until its days may have changed.
So each of those who are online is picked with the same probability, as if everybody were followed.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any

import numpy as np

from simfl.engine.life import Life, Waits
from simfl.engine.presence import LOST, WHY
from simfl.engine.session import Session
from simfl.engine.user_round import UserRound
from simfl.population.availability import FOR_EVER
from simfl.protocols.contracts import AnyServer, ClientMachine, buffer_server, client_machine
from simfl.protocols.machine import SERVER, Effects, Result, Subject, UpdateId
from simfl.results import trace as rows
from simfl.virtual_time import NS


class IdleUsers:
    """A set of user indices with O(1) add, discard and uniform draw; the user drawn leaves it."""

    def __init__(self, users: int, full: bool = False) -> None:
        self.users = array("q", range(users) if full else ())
        self.place = array("q", range(users) if full else [-1] * users)

    def add(self, user: int) -> None:
        if self.place[user] < 0:
            self.place[user] = len(self.users)
            self.users.append(user)

    def discard(self, user: int) -> None:
        hole = self.place[user]
        if hole >= 0:
            self.place[user] = -1
            moved = self.users.pop()
            if moved != user:
                self.users[hole] = moved
                self.place[moved] = hole

    def draw(self, rng: np.random.Generator) -> int:
        user = self.users[rng.integers(len(self.users))]
        self.discard(user)
        return user


class BufferedSession(Session):
    """One protocol over a buffer."""

    def main(self) -> Waits:
        """Begin the run, and then pick users for as long as it lasts: whenever a flight may be free, and
        whenever a sleeping user may be awake."""
        machines, everyone = self.machines, range(self.world.users)
        self.tasks: dict[UpdateId, UserRound] = {}
        self.current: dict[int, UserRound] = {}
        self.pending: set[int] = set()
        self.cycles: Counter[int] = Counter()
        self.idle, self.parked = IdleUsers(len(everyone)), dict[int, None]()
        self.asleep: list[tuple[int, int]] = []
        self.waking, self.picking = FOR_EVER, False
        self.rng = self.streams.rng("pick")
        self.clients: dict[int, ClientMachine] = {}
        self.entropies: dict[int, Any] = {}
        server = machines.server(everyone, machines.params, self.ops, machines.entropy(SERVER, 0))
        self.machine = buffer_server(server)
        cause = self.trace.add(rows.Begin(0, 0, tuple(everyone), buffered=True))
        if machines.kind.connected:
            self.follow_users()
        yield 0  # who is offline from the start has left by now
        self.at_server(self.machine, "start", None, cause, self.first_phase)
        if self.presence.away:
            for user in everyone:
                if user not in self.presence.away:
                    self.idle.add(user)
        else:
            self.idle = IdleUsers(len(everyone), full=True)
        self.picking, picked_by = True, cause
        while True:
            self._fill(picked_by)
            picked_by = yield None if self.waking == FOR_EVER else self.waking - self.env.now
            if picked_by is None:
                self.waking = FOR_EVER

    def client(self, user: int) -> ClientMachine:
        """A user's machine, for the whole run; made when it is first spoken to."""
        if user not in self.clients:
            machines = self.machines
            entropy = self.entropies[user] = machines.entropy(user, 0)
            machine = machines.client(user, machines.params, self.ops, entropy)
            self.clients[user] = client_machine(machine, machines.kind)
        return self.clients[user]

    # -- picking
    def _rest(self, user: int) -> None:
        """A user may have become free: put it in the pool."""
        task = self.current.get(user)
        busy = task is not None and self.working(task)
        awaited = user in self.pending or user in self.machine.flights
        if user not in self.presence.away and not busy and not awaited:
            self.idle.add(user)

    def _pick(self, cause: int) -> None:
        """Let the life of the run pick now; cause: the row that made it possible."""
        # Most steps of the server change nothing here.
        if self.picking and (self.asleep or (self.idle.users and self._has_free_flight)):
            self.life.wake(cause)

    @property
    def _has_free_flight(self) -> bool:
        limit = self.world.concurrency or self.world.users
        return len(self.machine.flights) + len(self.pending) < limit

    def _fill(self, cause: int | None) -> None:
        """Fill the flights. cause: what made it possible; None if it is that who is picked came online."""
        asleep, now = self.asleep, self.env.now
        while asleep and asleep[0][0] <= now:
            self._rest(heappop(asleep)[1])
        while self._has_free_flight and self.machine.open and not self.done:
            if not self.idle.users:  # look again when a sleeping user may be online
                self.waking = min([self.waking, *(until for until, _ in asleep[:1])])
                return
            user = self.idle.draw(self.rng)
            online, until = self.presence.look(user)
            if not online:
                if self.machines.kind.connected:  # its battery is empty: of all else the server has heard
                    assert self.meter is not None
                    assert self.meter.batteries is not None
                    self.meter.batteries.turn_off(user)
                elif until < FOR_EVER:
                    heappush(asleep, (until, user))
            elif self.machine.admits(user):
                here = cause
                if here is None:
                    here = self.trace.add(rows.Presence(user, True, now))
                    self.count_return()
                self._begin(user, here)
            else:  # its update waits in the buffer, or it did not enrol: look again when that has changed
                self.parked[user] = None

    def _begin(self, user: int, cause: int) -> None:
        cycle, self.cycles[user] = self.cycles[user], self.cycles[user] + 1
        behind = 0 if self.world.behind is None else self.world.behind(user, cycle)
        update, machine, plan = (
            UpdateId(user, cycle),
            self.machine,
            self.machines.losses.in_cycle(user, cycle),
        )
        client, own = self.client(user), self.entropies[user]
        task = self.machines.part(user, self.round, client, own, machine, self.host.weights, plan, update)
        self.tasks[update] = self.current[user] = task
        self.pending.add(user)
        self.presence.follow(user)
        if self.meter is not None:
            self.meter.join(user)

        def run() -> Effects:
            self.pending.discard(user)
            return self.host.open_cycle(machine, task, behind)

        self.at_server(machine, "begin", None, cause, self.first_phase, subject=update, task=task, run=run)

    # -- what a session asks
    def members(self, result: Result) -> list[tuple[UserRound, float]]:
        return [(self.tasks.pop(m.update), m.factor) for m in result.members if m.update is not None]

    def at_work(self) -> Iterable[UserRound]:
        tasks = (*self.tasks.values(), *self.current.values())
        return (task for task in tasks if task.delivered or not task.lost)

    def on_round_closed(self, step: int) -> None:
        self.start = self.env.now
        parked, self.parked = self.parked, {}
        for user in parked:
            self._rest(user)

    def on_processed(self, task: UserRound, step: int) -> None:
        if task.id in self.tasks:  # the server took it
            self.progress.made()
        if self.current.get(task.user) is task:
            del self.current[task.user]
            self.part_over(task.user)
        self._rest(task.user)

    def on_heard(self, user: int) -> None:
        if user in self.parked and self.machine.admits(user):  # it has enrolled
            del self.parked[user]
            self._rest(user)

    def on_given_up(self, users: Iterable[int], update: UpdateId | None) -> None:
        task = self.tasks.pop(update, None) if update is not None else None
        for user in users:
            self.part_over(user)
            self._rest(user)
        if task is None or task.lost:  # whoever is lost comes back, which is counted
            return
        self.progress.late += 1
        if self.progress.all_late:
            deadline = f"deadlines.upload={self.world.deadlines_ns['upload'] / NS:g} s"
            self.stall(f"the last {self.progress.late} updates took longer than {deadline}")

    @property
    def awaited(self) -> str:
        return "no update was taken" if self.machine.open else "too few enrolled"

    def on_discarded(self, update: UpdateId) -> None:
        self.tasks.pop(update, None)

    def on_server_step(self, step: int) -> None:
        self._pick(step)

    # -- coming and going
    def resting(self, user: int) -> bool:
        return not (self.machines.kind.connected or user in self.current or self.network.busy(user))

    def drop(self, task: UserRound) -> None:
        """Expect nothing more of a user's cycle, unless its upload has left."""
        self.current.pop(task.user, None)
        if task.user in self.pending:  # lost before it began: the server will never speak of it
            self.pending.discard(task.user)
            assert task.id is not None
            del self.tasks[task.id]

    def on_lost(self, task: UserRound) -> None:
        self.progress.failed += 1
        self.drop(task)
        if self.presence.online(task.user):
            assert self.world.return_ns is not None
            self.presence.leave(task.user, LOST)
            Life(self.env, self._return(task.user, self.world.return_ns), at_once=True)

    def _return(self, user: int, after_ns: int) -> Waits:
        """Bring a lost user back online."""
        yield after_ns
        self.presence.come(user, LOST)

    def went_offline(self, user: int, why: str, row: int) -> None:
        self.idle.discard(user)
        task = self.current.get(user)
        if task is not None and not task.delivered:
            self.lose(task, task.phase, WHY[why], row)
        elif why != LOST:  # of a loss the transport is told already
            self.disconnections.report(user, None, self.machine, "training", row)

    def came_online(self, user: int, row: int) -> None:
        self.disconnections.tell(user)  # a new connection tells that the old one broke
        self.at_server(self.machine, "back", user, row, "recovery")
        self._rest(user)
        self._pick(row)
        self.count_return()

    def task_of(self, user: int, index: int, subject: Subject) -> UserRound | None:
        task = self.tasks.get(subject) if isinstance(subject, UpdateId) else None
        return task if task is not None and task.user == user else None

    def client_of(self, user: int, task: UserRound | None) -> ClientMachine:
        return self.client(user)

    def machine_of(self, task: UserRound | None) -> AnyServer:
        return self.machine
