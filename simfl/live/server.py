"""The server of a live run: the engine's session of rounds, whose users are at the other ends of sockets.

It selects, opens rounds, runs the machine and closes rounds as in virtual time; it is the same code. What it
knows of a user is what came over its connection: the end of one is a loss. The aggregates are checked after
the run, as the server has no plain updates: the users are trained again, from the models that they were sent.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from simfl.dataplane.handles import Handle
from simfl.engine.carry_out import close_round
from simfl.engine.rounds import RoundSession
from simfl.engine.setup import ClosedRound, RunConfig
from simfl.engine.transport import ToServer
from simfl.engine.user_round import UserRound
from simfl.errors import RunFailed
from simfl.live.connection import Connection, LiveNetwork, Owner
from simfl.live.real_time import either
from simfl.live.shaping import Link
from simfl.live.wire import (
    STRANGER_BYTES,
    Bye,
    Done,
    Envelope,
    Free,
    Hello,
    Malformed,
    Over,
    Part,
    Rows,
    Start,
)
from simfl.protocols.machine import SERVER, Result
from simfl.results import trace as rows
from simfl.virtual_time import NS

JOIN_S = 120.0
"""Until when all users must have joined."""
HELLO_S = 5.0
"""Until when whoever connects must have said who it is."""
LINGER_S = 0.3
"""So long late messages are still taken after the last round, beside the longest latency."""
REPORT_S = 20.0
STRANGERS = 64
"""Connections of nobody that may be open at once."""
LONGEST_REPORT = 10**9  # characters of all rows of a user


class LiveServer(Owner, RoundSession):
    """busy: (user, round) of users that may still work for a round. broken_off: (round, user, phase, time) of
    connections that ended amid a part. refused: what was cut off or refused, by reason."""

    def __init__(self, wires: Any, world: RunConfig, *parts: Any) -> None:
        self.peers: dict[int, Connection] = {}
        self.strangers: set[Connection] = set()
        self.refused: Counter[str] = Counter()
        self.busy: set[tuple[int, int]] = set()
        self.known: dict[tuple[int, int], UserRound] = {}
        self.broken_off: list[tuple[int, int, str, int]] = []
        self.results: dict[int, tuple[Result, Handle, dict[tuple[int, int], UserRound]]] = {}
        self.reports: dict[int, list[str]] = {}
        self.reported: dict[int, Done] = {}
        self.over = False
        self.changed = asyncio.Event()
        super().__init__(wires, replace(world, network=partial(LiveNetwork.of, self, False)), *parts)
        self.from_users = Link(self.env, wires.server_rate(up=False))
        self.to_users = Link(self.env, wires.server_rate(up=True))

    # -- the run
    def connection(self) -> Connection:
        """Return the server's end of a new connection: a stranger's, as yet."""
        return _Stranger(self, self.wires.up, STRANGER_BYTES)

    async def run(self) -> None:
        """Play all rounds once everybody is there, and collect what the users noted."""
        await self._until(lambda: len(self.peers) == self.world.users, JOIN_S, "have not joined")
        origin = time.monotonic_ns()
        for peer in self.peers.values():
            peer.say(Start(origin))
        if self.world.horizon_ns is not None:
            self.env.at(self.world.horizon_ns, self._horizon)
        self.env.start(origin)
        await self._until(lambda: self.done, None, "")
        longest = max(map(self.latency_ns, range(self.world.users)))
        await asyncio.sleep(LINGER_S + longest / NS)
        self.env.hear(self._end)
        try:
            await self._until(lambda: self.reported.keys() >= self.peers.keys(), REPORT_S, "do not report")
        finally:
            self.env.stop()

    async def _until(self, reached: Any, within_s: float | None, why: str) -> None:
        """Wait until something is so. RunFailed if the session fails, or after so many seconds."""
        ends = None if within_s is None else time.monotonic() + within_s
        while not reached():
            self.changed.clear()
            left = None if ends is None else ends - time.monotonic()
            if not await either(self.changed, self.env.failed, left):
                missing = sorted(set(range(self.world.users)) - self.peers.keys() - self.reported.keys())
                raise RunFailed(f"users {', '.join(map(str, missing[:10]))} {why} within {within_s:g} s")

    def _horizon(self) -> None:
        if not self.done:
            self.stall(f"the horizon of {self.env.now / NS:g} s is reached")

    def _end(self) -> None:
        self.over = True
        self.close()
        for peer in self.peers.values():
            peer.shape(Link(self.env, lambda now: float("inf")), lambda now: float("inf"))
            peer.into = None
            peer.say(Bye())

    # -- rounds
    def _available(self) -> list[int]:
        return [user for user in super()._available() if user in self.peers]

    def _begin(self, chosen: list[int]) -> None:
        index = self.round
        super()._begin(chosen)
        late = {key: task for key, task in self.known.items() if key[1] >= index - 1 or self.working(task)}
        self.known = late | self.tasks
        for user in chosen:
            self.busy.add((user, index))
            plan = self.tasks[user, index].plan
            peer = self.peers.get(user)
            if peer is not None:
                peer.say(Part() if plan is None else Part(plan.point, plan.when, plan.delay_ns), index)

    def working(self, task: UserRound) -> bool:
        return (task.user, task.round) in self.busy and not (task.delivered or task.lost)

    def close_round(self, result: Result) -> ClosedRound:
        self.results[self.round] = result, self.host.weights, self.tasks
        return ClosedRound(self.round, self.env.now, None, None, self.machines.losses.rate_in(self.round))

    def end_round(self, step: int, closed: ClosedRound) -> None:
        super().end_round(step, closed)
        self.changed.set()
        for task in self.tasks.values():
            peer = self.peers.get(task.user)
            if task.round < self.round and self.working(task) and peer is not None:
                peer.say(Over(), task.round)

    def on_lost(self, task: UserRound) -> None:
        """The server itself loses a user that uploaded in vain, by ending its connection."""
        peer = self.peers.pop(task.user, None)
        if peer is not None:
            peer.abort()

    def audited(self) -> Iterator[ClosedRound]:
        """Yield the closed rounds with their audits and evaluations, all of it done now."""
        ops = self.ops
        for closed in self.outcomes:
            if closed.round in self.results:
                result, self.host.weights, self.tasks = self.results[closed.round]
                ops.begin((self.machines.name, closed.round, SERVER, "audit", ""), "recovery")
                for member in result.members:
                    task = self.tasks[member.user, closed.round]
                    task.train(ops, self.trainer, self.training.seed(task))
                    task.submit(ops, self.world.clip, self.world.samples(task.user))
                ops.end()
                self.round = closed.round
                yield replace(close_round(self, result), at=closed.at)
            else:
                yield closed

    # -- connections
    def connection_of(self, user: int) -> Connection | None:
        return self.peers.get(user)

    def taken(self, connection: Connection, envelope: Envelope) -> None:
        message, user = envelope.message, connection.user
        if user < 0:
            self._enter(connection, message)
            return
        match message:
            case Hello():
                raise Malformed("a second hello")
            case Free():
                self.busy.discard((user, envelope.round))
            case Rows(lines):
                self._report(user, lines)
            case Done():
                self._report(user, "")
                self.reported[user] = message
                self.changed.set()
            case _:
                self._message(user, envelope)

    def _enter(self, connection: Connection, hello: Any) -> None:
        right = isinstance(hello, Hello) and hmac.compare_digest(
            hello.token.encode(), self.wires.token.encode()
        )
        if not right or not 0 <= hello.user < self.world.users:
            raise Malformed("not a user of this run")
        earlier = self.peers.get(hello.user)
        if earlier is not None:  # the end of its connection is still on its way
            earlier.abort()
            self.broken(earlier)
        self.strangers.discard(connection)
        connection.user = hello.user
        connection.parser.most = self.wires.most_bytes
        connection.shape(self.to_users, self.wires.rate(hello.user, up=False))
        connection.take_through(self.from_users)
        self.peers[hello.user] = connection
        if self.over:
            connection.say(Bye())
        self.changed.set()

    def _report(self, user: int, lines: str) -> None:
        if not self.over or user in self.reported:
            raise Malformed("a report that is not asked for")
        report = self.reports.setdefault(user, [])
        report.append(lines)
        if sum(map(len, report)) > LONGEST_REPORT:
            raise Malformed("a report that is too long")

    def _waited_in(self, index: int) -> str:
        """Return the phase that a round is in: for all that the server knows, a user is missed there."""
        timers = (row for row in reversed(self.trace) if isinstance(row, rows.TimerSet))
        return next((row.phase for row in timers if row.round == index), self.first_phase)

    def _message(self, user: int, envelope: Envelope) -> None:
        task = self.known.get((user, envelope.round))
        if task is None:
            raise Malformed(f"{envelope.message.kind}: of round {envelope.round}, which it is not in")
        t = ToServer(self.transport, envelope.message, user, SERVER, envelope.round, envelope.step)
        t.at = min(t.at, envelope.at)
        t.task = task
        self.later(user, True, t.arrived)

    def malformed(self, connection: Connection, fault: Malformed) -> None:
        self.refused[str(fault)] += 1
        if connection.user >= 0 and self.begun >= 0:
            index = min(self.round, self.world.rounds - 1)
            self.trace.add(
                rows.Refused(index, SERVER, connection.user, "frame", "", str(fault), -1, self.env.now)
            )
        connection.abort()
        self.broken(connection)

    def broken(self, connection: Connection) -> None:
        self.strangers.discard(connection)
        user = connection.user
        if self.peers.get(user) is not connection:
            return
        del self.peers[user]
        self.changed.set()
        if self.over:
            return
        delay_ns = None
        if self.world.disconnect_ns is not None:
            delay_ns = max(self.world.disconnect_ns, self.latency_ns(user))
        for task in self.known.values():
            current = task.round == self.round and not self.done
            if task.user == user and not task.lost and (current or self.working(task)):
                task.lost = True
                phase = self._waited_in(task.round)
                self.broken_off.append((task.round, user, phase, self.env.now))
                if delay_ns is not None:
                    more = {"round": task.round}
                    gone = partial(self.at_server, task.server, "gone", user, -2 - user, phase, **more)
                    self.env.at(self.env.now + delay_ns, gone)


class _Stranger(Connection):
    """A connection of which nobody knows yet who it is; they are few, and must say so soon."""

    owner: LiveServer

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.owner.strangers.add(self)
        if len(self.owner.strangers) > STRANGERS:
            self.owner.malformed(self, Malformed(f"more than {STRANGERS} strangers at once"))
        else:
            asyncio.get_running_loop().call_later(HELLO_S, self._expect_hello)

    def _expect_hello(self) -> None:
        if self.user < 0 and not self.closing:
            self.owner.malformed(self, Malformed(f"no hello within {HELLO_S:g} s"))
