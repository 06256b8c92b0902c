"""The server's door in a live run: who joins, what comes over each connection, and the reports at the end.

Whoever connects is a stranger until a hello with the run's token; strangers are few, and must say soon who
they are. What is malformed ends its connection, is counted, and the run goes on.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from abc import abstractmethod
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

from simfl.engine.setup import RunConfig
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
    Rows,
    Start,
    Taken,
)
from simfl.protocols.machine import SERVER
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


class Door(Owner):
    """A session whose users are at the other ends of connections. peers: connections by user. over: only
    reports are taken any more. refused: what was cut off or refused, by reason."""

    def __init__(self, wires: Any, world: RunConfig, *parts: Any) -> None:
        self.peers: dict[int, Connection] = {}
        self.strangers: set[Connection] = set()
        self.refused: Counter[str] = Counter()
        self.reports: dict[int, list[str]] = {}
        self.reported: dict[int, Done] = {}
        self.over = False
        self.changed = asyncio.Event()
        super().__init__(wires, replace(world, network=partial(LiveNetwork.of, self, False)), *parts)
        self.from_users = Link(self.env, wires.server_rate(up=False))
        self.to_users = Link(self.env, wires.server_rate(up=True))

    @abstractmethod
    def heard(self, user: int, envelope: Envelope) -> None:
        """A user's message came whole. Malformed if it is not one for now."""

    @abstractmethod
    def free(self, user: int, index: int) -> None:
        """A user works no more on what it was asked for in a round."""

    def acknowledged(self, user: int, count: int) -> None:
        """A user is there, and has taken so many messages."""
        raise Malformed("no count of messages is due")

    @abstractmethod
    def gone(self, user: int) -> None:
        """The connection of a user is no more, before the run was over."""

    @abstractmethod
    def refusal_round(self) -> int:
        """Return the round in which a refused frame is noted; -1 before the first."""

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
        for peer in tuple(self.peers.values()):  # of which one may break, as what waited is malformed
            peer.unshape()
            peer.say(Bye())

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
                self.free(user, envelope.round)
            case Taken(count):
                self.acknowledged(user, count)
            case Rows(lines):
                self._report(user, lines)
            case Done():
                self._report(user, "")
                self.reported[user] = message
                self.changed.set()
            case _:
                self.heard(user, envelope)

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

    def malformed(self, connection: Connection, fault: Malformed) -> None:
        self.refused[str(fault)] += 1
        index = self.refusal_round()
        if connection.user >= 0 and index >= 0:
            self.trace.add(
                rows.Refused(index, SERVER, connection.user, "frame", "", str(fault), -1, self.env.now)
            )
        connection.abort()
        self.broken(connection)

    def dismiss(self, user: int) -> None:
        """End the connection of a user, of whose end nobody is to hear."""
        peer = self.peers.pop(user, None)
        if peer is not None:
            peer.abort()

    def broken(self, connection: Connection) -> None:
        self.strangers.discard(connection)
        user = connection.user
        if self.peers.get(user) is connection:
            del self.peers[user]
            self.changed.set()
            if not self.over:
                self.gone(user)


class _Stranger(Connection):
    """A connection of which nobody knows yet who it is; they are few, and must say so soon."""

    owner: Door

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
