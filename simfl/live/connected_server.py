"""The server's side of all connections in a live run: joining, messages, and the reports at the end.

A connection is unauthenticated until a hello with the run's token. Few of these are open at a time, and each
is closed unless its hello arrives soon. A malformed message ends its connection and is counted; the run
continues.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, Any

from simfl.engine.server_side import ServerSide
from simfl.errors import RunFailed, counted
from simfl.live.connection import Connection, Latencies, LiveRuntime, WireConfig
from simfl.live.hello import LOOK, RUN, Hello, Ping, Pong, Ready, Rejected, Rounding, Welcome
from simfl.live.mailbox import Mailbox
from simfl.live.peer import Peer
from simfl.live.real_time import wait_until
from simfl.live.shaping import Link
from simfl.live.user_reports import REPORT_BYTES, REPORT_S, UserReports
from simfl.live.wire import (
    UNAUTHENTICATED_BYTES,
    Away,
    Bye,
    Control,
    Done,
    Envelope,
    Free,
    Malformed,
    Rows,
    Start,
    Taken,
)
from simfl.protocols.machine import SERVER
from simfl.trace import rows
from simfl.virtual_time import NS

if TYPE_CHECKING:
    from simfl.live.remote_users import RemoteUsers

START_NS = NS // 10
"""So long before it the users are sent the time at which the run begins."""
LINGER_S = 0.3
"""So long late messages are still taken after the last round, beside the longest latency."""
AGAIN_S = 1.0
"""So long a user whose connection ended may take to open another one, as the run ends."""
LEAST_CHARGE = 1024
"""Bytes that a frame counts at least, since a short one costs as much work."""
OBSERVER_BYTES, OBSERVER_QUOTA = 2**20, 2**26  # in a frame of a user who looks; of all its looks, either way
LOOK_S, MOST_PINGS = 120.0, 1000  # so long it may look, and ask over one connection
HELLOS = 600  # of one user within a minute; one whose devices come and go often needs some
REASONS = 1000
WATCH_S = 1.0


class ConnectedServer:
    """A session's server, with its ends of all connections.

    Attributes:
        users: Users as the engine's server side calls them; set before the run.
        side: The engine's server side; set before the run.
        peers: Connections by user.
        absent: Connections of users who are offline, which only report; None where it has ended.
        unauthenticated: Connections without an accepted hello.
        connections: All connections.
        refused: Frames and connections cut off or refused, by reason.
        reports: Users' reports at the end of the run.
        received_bytes: Bytes by user, and whether it only observes.
        broke_s: When the connection ended of a user that has no other yet.
        hellos: Times of each user's latest hellos, in seconds.
        rounding: Seeds that users revealed, by user and task.
        origin: The machine's monotonic clock as the run began, in nanoseconds; 0 before.
        over: Only reports are still accepted.
        changed: Set when a user has joined, left or reported, or a round is over.
    """

    users: RemoteUsers
    side: ServerSide

    def __init__(self, runtime: LiveRuntime, wires: WireConfig) -> None:
        self.runtime, self.wires = runtime, wires
        self.env, self.config = runtime.env, runtime.config
        self.latencies = Latencies(self.env, wires)
        self.peers: dict[int, Peer] = {}
        self.absent: dict[int, Peer | None] = {}
        self.unauthenticated: set[Peer] = set()
        self.connections: set[Peer] = set()
        self.refused: Counter[str] = Counter()
        self.reports = UserReports()
        self.received_bytes: Counter[tuple[int, bool]] = Counter()
        self.broke_s: dict[int, float] = {}
        self.hellos: dict[int, deque[float]] = {}
        self.rounding: dict[tuple[int, int], bytes] = {}
        self.origin = 0
        self.over = False
        self.changed = asyncio.Event()
        self.from_users = Link(self.env, wires.server_rate(up=False))
        self.to_users = Link(self.env, wires.server_rate(up=True))

    def connection(self) -> Peer:
        """Return the server's end of a new connection, which is unauthenticated."""
        return Peer(self, self.wires.up, UNAUTHENTICATED_BYTES)

    async def run(self) -> None:
        """Play all rounds once everybody is there, and collect what the users noted."""
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            await self._played()
        finally:
            watching.cancel()
            self.env.stop()
            for peer in tuple(self.connections):
                peer.abort()

    async def _played(self) -> None:
        await self._joined()
        origin = self.origin = time.monotonic_ns() + START_NS
        for peer in self.lines().values():
            peer.send_control(Start(origin))
        if self.config.horizon_ns is not None:
            self.env.call_at(self.config.horizon_ns, self._horizon)
        self.env.start(origin)
        await wait_until(self.changed, self.env.failed, lambda: self.side.done)
        longest = max(map(self.latencies.of, range(self.config.users)))
        await asyncio.sleep(LINGER_S + longest / NS)
        await self._connecting()
        self.env.call_external(self._end)
        if not await wait_until(
            self.changed, self.env.failed, lambda: self.reports.done.keys() >= self.lines().keys(), REPORT_S
        ):
            for user, peer in self.lines().items():
                if user not in self.reports.done:
                    self.on_malformed(peer, Malformed(f"no report within {REPORT_S:g} s"))

    async def _joined(self) -> None:
        """Wait for all users. Those who are missing in the end are offline, if the run may begin without."""
        users, within_s = range(self.config.users), self.wires.join_s
        if await wait_until(self.changed, self.env.failed, lambda: len(self.lines()) == len(users), within_s):
            return
        missing = [user for user in users if user not in self.lines()]
        if not (self.wires.begins_without and self.peers):
            listed = ", ".join(map(str, missing[:10])) + ", ..." * (len(missing) > 10)
            raise RunFailed(f"{counted(len(missing), 'user')} did not join within {within_s:g} s: {listed}")
        for user in missing:
            self.absent[user] = None
            self.count(f"user {user} did not join within {within_s:g} s")

    async def _connecting(self) -> None:
        """Wait for users whose connection ended just now: they are opening another one, or are dead."""
        ends = time.monotonic() + 5 * AGAIN_S  # one that connects and leaves again and again holds nothing up
        while self.broke_s and time.monotonic() < min(ends, max(self.broke_s.values()) + AGAIN_S):
            await asyncio.sleep(AGAIN_S / 20)

    def _line(self, user: int) -> Peer | None:
        return self.peers.get(user) or self.absent.get(user)

    def lines(self) -> dict[int, Peer]:
        """Return the connections of all users, of those too who are offline."""
        return {user: line for user in range(self.config.users) if (line := self._line(user)) is not None}

    def _horizon(self) -> None:
        if not self.side.done:
            self.side.stall(f"the horizon of {self.env.now / NS:g} s is reached")

    def _end(self) -> None:
        self.over = True
        self.side.device.close()
        for peer in self.lines().values():
            peer.unshape()
            peer.send_control(Bye())

    def connection_of(self, user: int) -> Connection | None:
        return self.peers.get(user)

    def switched(self, user: int, now: bool) -> None:
        """Keep or send what waits in the mailbox of a user that is offline, or back."""
        box = self.side.network.link(user, up=False)
        if isinstance(box, Mailbox):
            box.online(now)

    def on_message(self, connection: Connection, envelope: Envelope) -> None:
        assert isinstance(connection, Peer)
        message, user = envelope.message, connection.user
        if user < 0:
            self._enter(connection, message)
            return
        most = OBSERVER_QUOTA if connection.looks else self.wires.quota_bytes + self.over * REPORT_BYTES
        self.received_bytes[user, connection.looks] += max(LEAST_CHARGE, envelope.size)
        if self.received_bytes[user, connection.looks] > most:
            raise Malformed(f"more than {most} bytes of a user")
        match message:
            case Hello():
                raise Malformed("a second hello")
            case Ping(sent, size):
                self._answer(connection, sent, size)
            case Ready() | Away() if connection.looks or connection is self._line(user):
                raise Malformed("ready, and not asked for")
            case Ready() | Away():
                self._join(connection, online=isinstance(message, Ready))
            case _ if connection is not self._line(user):
                raise Malformed(f"{message.kind} of a user that has not joined")
            case Free():
                self.users.free(user, envelope.round)
            case Taken(count):
                self.users.acknowledged(user, count)
            case Rounding(seed):
                if not self.over or not re.fullmatch("[0-9a-f]{64}", seed):
                    raise Malformed("a seed that is not asked for")
                if envelope.round < self.users.parts_of(user):
                    self.rounding[user, envelope.round] = bytes.fromhex(seed)
            case Rows() | Done() if not self.over:
                raise Malformed("a report that is not asked for")
            case Rows(lines):
                self.reports.add(user, lines)
            case Done():
                run_ns = time.monotonic_ns() - self.origin
                self.reports.end(user, message, run_ns, round(self.wires.join_s * NS))
                self.changed.set()
            case Control():
                raise Malformed(f"{message.kind}, and not asked for")
            case _ if user in self.absent:
                raise Malformed(f"{message.kind} of a user that is offline")
            case Control():
                raise Malformed(f"{message.kind} is not due")
            case _:
                self.users.on_user_message(user, envelope)

    def _enter(self, connection: Peer, hello: Any) -> None:
        if not isinstance(hello, Hello):
            raise Malformed("something else than a hello first")
        if why := self.wires.admission.reject_reason(hello, connection.nonce) or self._untimely(hello):
            self.count(why)
            connection.send_control(Rejected(why))
            connection.leave()
            self.on_broken(connection)
            return
        self.unauthenticated.discard(connection)
        connection.known.set()
        connection.user, connection.looks = hello.user, hello.wants == LOOK
        connection.parser.most = OBSERVER_BYTES if connection.looks else self.wires.most_bytes
        welcome = self.wires.admission.welcome
        connection.send_control(welcome if connection.looks else Welcome())
        if connection.looks:
            asyncio.get_running_loop().call_later(LOOK_S, connection.abort)

    def _untimely(self, hello: Hello) -> str:
        """Return why a user cannot come in now; empty if it can."""
        times = self.hellos.setdefault(hello.user, deque(maxlen=HELLOS))
        now = time.monotonic()
        if len(times) == HELLOS and now - times[0] < 60:
            return f"user {hello.user} has connected {HELLOS} times within a minute"
        times.append(now)
        if hello.wants == RUN and self.origin and hello.origin != self.origin:
            return f"the run has begun without this process of user {hello.user}"
        return ""

    def _join(self, connection: Peer, online: bool) -> None:
        user = connection.user
        earlier = self.peers.get(user)
        if earlier is not None:  # the end of its connection is still on its way
            earlier.abort()
            self.on_broken(earlier)
        self.broke_s.pop(user, None)
        if not online:
            self.absent[user] = connection
        else:
            connection.shape(self.to_users, self.wires.rate(user, up=False))
            connection.take_through(self.from_users)
            self.peers[user] = connection
            if user in self.absent:
                del self.absent[user]
                self.users.back(user)
        if self.over:
            connection.send_control(Bye())
        self.changed.set()

    def _answer(self, connection: Peer, sent: int, size: int) -> None:
        if size > (OBSERVER_BYTES // 2 if connection.looks else 0):
            raise Malformed(f"a ping for {size} bytes")
        self.received_bytes[connection.user, connection.looks] += size
        connection.answered += 1
        if connection.answered > MOST_PINGS:
            raise Malformed(f"more than {MOST_PINGS} pings")
        connection.send_control(Pong(sent, time.monotonic_ns(), "." * size))

    async def _watch(self) -> None:
        """Cut off, as long as the run goes on, who sends half a frame or does not read."""
        while True:
            await asyncio.sleep(WATCH_S)
            for connection in (*self.unauthenticated, *self.lines().values()):
                if why := connection.flaw():
                    self.env.call_external(partial(self.on_malformed, connection, Malformed(why)))

    def count(self, why: str) -> None:
        """Count a refusal; REASONS bounds the distinct reasons, which unauthenticated peers could make up."""
        known = why in self.refused or len(self.refused) < REASONS
        self.refused[why if known else "for other reasons"] += 1

    def on_malformed(self, connection: Connection, fault: Malformed) -> None:
        self.count(str(fault))
        index = self.users.refusal_round()
        if connection.user >= 0 and index >= 0:
            self.runtime.trace.add(
                rows.Refused(index, SERVER, connection.user, "frame", "", str(fault), -1, self.env.now)
            )
        connection.abort()
        self.on_broken(connection)

    def dismiss(self, user: int) -> None:
        """End the connection of a user, without a report of its end."""
        peer = self.peers.pop(user, None)
        if peer is not None:
            peer.abort()

    def on_broken(self, connection: Connection) -> None:
        self.unauthenticated.discard(connection)
        user = connection.user
        if self.lines().get(user) is connection:
            self.broke_s[user] = time.monotonic()
        if self.peers.get(user) is connection:
            del self.peers[user]
            self.changed.set()
            if not self.over:
                self.users.gone(user)
        elif self.absent.get(user) is connection:
            self.absent[user] = None
            self.changed.set()
