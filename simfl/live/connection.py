"""A connection between a user and the server, as either of them holds it."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

import simpy

from simfl.dataplane.work import Segment
from simfl.engine.devices import Device, Job
from simfl.engine.session import Session
from simfl.engine.transport import Transmission
from simfl.live.hello import Admission
from simfl.live.real_time import RealTime
from simfl.live.shaping import Flow, Link
from simfl.live.wire import Codec, Envelope, Malformed, Parser
from simfl.population.links import Links, ServerLink
from simfl.protocols.machine import Message
from simfl.virtual_time import nanoseconds

OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # A machine that is gone without a word is noticed within a minute, though nothing is sent to it.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]
QUEUE = 4  # frames of the longest kind that may wait for a link; whoever sends more is cut off


def unbounded(now: int) -> float:
    return math.inf


@dataclass(frozen=True)
class Wires:
    """The sockets' side of a protocol's run. links, server_link: None where nothing is shaped or delayed.

    up, down: the codecs of messages to the server and to users. most_bytes: of a frame. quota_bytes: of all
    that a user sends before its report. join_s: until when all must have joined, and how long a user tries to
    reach the server. begins_without: after `join_s` the run begins without users who have not joined.
    rates_here, latency_here: False where they are those of the sockets' own path. among: the codec of what
    users send each other.
    """

    up: Codec
    down: Codec
    most_bytes: int
    admission: Admission
    links: Links | None
    server_link: ServerLink | None
    jitter: Callable[[int, bool], Iterator[float] | None] | None
    quota_bytes: int
    among: Codec | None = None
    join_s: float = 120.0
    begins_without: bool = False
    rates_here: bool = True
    latency_here: bool = True

    def rate(self, user: int, up: bool) -> Callable[[int], float]:
        """Return the rate of a user's link at a time, bit/s."""
        return self._rate(None if self.links is None else partial(self.links, user), up)

    def server_rate(self, up: bool) -> Callable[[int], float]:
        """Return the rate of the server's link at a time; up: to the users."""
        return self._rate(self.server_link, up)

    def _rate(self, link: Callable[[int], Sequence[float]] | None, up: bool) -> Callable[[int], float]:
        if link is None or not self.rates_here:
            return unbounded
        bps, until = 0.0, -1.0

        def rate(now: int) -> float:
            nonlocal bps, until
            if now >= until:
                state = link(now)
                bps, until = float(state[0 if up else 1]), state[-1]
            return bps

        return rate


class Owner(Session, ABC):
    """A session in real time, of the server or of a user: its peers are at the other ends of connections.

    steps_ns: what its steps should have taken. late_ns: by how much they took longer, or began late. held_ns:
    the longest real work of a step that was done in line, so that the process heard nothing meanwhile.
    worker: a thread that trains, if anybody does, with operations of its own, as a ledger is one step's.
    """

    wires: Wires
    worker: Executor | None = None
    env: RealTime

    def __init__(self, wires: Wires, *parts: Any) -> None:
        self.wires = wires
        self.environment = RealTime
        self.steps_ns = self.late_ns = self.held_ns = 0
        self._last_ns: dict[int, int] = {}
        self._jitter: dict[int, Iterator[float] | None] = {}
        super().__init__(*parts)

    @abstractmethod
    def taken(self, connection: Connection, envelope: Envelope) -> None:
        """A frame came whole. Malformed if it is not one for now."""

    @abstractmethod
    def malformed(self, connection: Connection, fault: Malformed) -> None:
        """Cut a connection off, and count it."""

    @abstractmethod
    def broken(self, connection: Connection) -> None:
        """A connection is no more."""

    @abstractmethod
    def connection_of(self, user: int) -> Connection | None:
        """Return the connection over which a user is reached, or reaches the server."""

    def online(self, user: int, now: bool) -> None:
        """A user's own device has left, or is back."""

    @abstractmethod
    def apart(self, transmission: Transmission, connection: Connection) -> Message:
        """Let what users have for each other go its own way; return what is left for the server to carry."""

    def latency_ns(self, user: int) -> int:
        links = self.wires.links
        return 0 if links is None else nanoseconds(links(user, self.env.now).latency_s)

    def outward(self, codec: Codec, user: int) -> LiveLink:
        """Return the link over which messages go to a user, or to the server."""
        return LiveLink(self, codec, user)

    def later(self, user: int, up: bool, then: Callable[[], None]) -> None:
        """Let a message of a user's link arrive after its latency; none overtakes an earlier one."""
        due = self.env.now + (self.latency_ns(user) if self.wires.latency_here else 0)
        if self.wires.links is not None and self.wires.jitter is not None:
            if user not in self._jitter:
                self._jitter[user] = self.wires.jitter(user, up)
            draws = self._jitter[user]
            due += 0 if draws is None else nanoseconds(next(draws))
        due = self._last_ns[user] = max(due, self._last_ns.get(user, 0))
        self.env.at(due, then)

    def ready(self) -> None:
        """A process that has waited has cold caches as it is."""

    def execute(self, device: Device, lane: str, job: Job) -> simpy.Event | None:
        if self.worker is not None and lane == "training":
            loop, working = asyncio.get_running_loop(), self.env.event()
            doing = loop.run_in_executor(self.worker, self.work, device, lane, job)
            worked = partial(self._worked, device, job, working)
            doing.add_done_callback(lambda done: self.env.hear(partial(worked, done)))
            return working
        began = time.monotonic_ns()
        super().execute(device, lane, job)
        self.held_ns = max(self.held_ns, time.monotonic_ns() - began)
        return None

    def _worked(
        self, device: Device, job: Job, working: simpy.Event, done: asyncio.Future[list[Segment]]
    ) -> None:
        self.charge(device, "training", job, done.result())
        working.succeed()

    def finish(self, device: Device, job: Job, step: int) -> None:
        self.steps_ns += job.end - job.start
        self.late_ns += self.env.now - job.end
        if job.blocker < 0:  # neither the lane nor a core kept it from beginning, but this machine
            self.late_ns += job.start - job.ready
        super().finish(device, job, step)


class LiveLink:
    """One direction of a user's link at its sender: in place of the engine's `UserLink`."""

    def __init__(self, owner: Owner, codec: Codec, user: int) -> None:
        self.owner, self.codec, self.user = owner, codec, user

    @property
    def settling_ns(self) -> int:
        """Until when what has left may still arrive: the end of a connection is as slow as a message."""
        return self.owner.latency_ns(self.user)

    def send(self, transmission: Transmission) -> None:
        connection = self.owner.connection_of(self.user)
        if connection is None:
            transmission.broke(0)
            return
        t = transmission
        message = self.owner.apart(t, connection) if t.relayed and self.owner.wires.among else t.message
        frame = self.codec.encode(message, t.round, t.step, t.at)
        connection.put(frame[: len(frame) // 2] if t.half else frame, t.sent)

    def cut(self) -> None:
        connection = self.owner.connection_of(self.user)
        if connection is not None:
            connection.out.cut()


class LiveNetwork:
    """The links of one side. Only the direction in which it sends has anything that can be cut."""

    def __init__(self, owner: Owner, up: bool) -> None:
        self.owner, self.up = owner, up
        self.codec = owner.wires.up if up else owner.wires.down
        self.outward: dict[int, LiveLink] = {}

    @classmethod
    def of(cls, owner: Owner, up: bool, env: Any) -> Any:
        """Return it where a session asks for its network."""
        return cls(owner, up)

    def link(self, user: int, up: bool) -> LiveLink:
        if up != self.up:
            return _Far(self.owner, self.codec, user)
        if user not in self.outward:
            self.outward[user] = self.owner.outward(self.codec, user)
        return self.outward[user]

    def pause(self, user: int) -> None:
        self.owner.online(user, False)

    def resume(self, user: int) -> None:
        self.owner.online(user, True)

    def close(self) -> None: ...


class _Far(LiveLink):
    def cut(self) -> None: ...


class Connection(asyncio.Protocol):
    """Frames over a socket. out: shapes what is sent; into: shapes what comes, through the server's own link.

    user: who is at the other end; -1 while nobody has said so. closing: nothing of it is heard any more;
    closed: the socket is. heard_s: when something came last.
    """

    def __init__(self, owner: Owner, codec: Codec, most_bytes: int, user: int = -1) -> None:
        self.owner, self.codec, self.user = owner, codec, user
        self.parser = Parser(most_bytes)
        self.closing = False
        self.closed = asyncio.Event()
        self.heard_s = time.monotonic()
        self.transport: Any = None
        self.into: Flow | None = None
        self._unbounded()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self.closing:  # its owner wants it no more
            transport.abort()
            return
        for level, option, value in OPTIONS:
            transport.get_extra_info("socket").setsockopt(level, option, value)

    def _unbounded(self) -> None:
        self.shape(Link(self.owner.env, unbounded), unbounded)

    def unshape(self) -> None:
        """Let pass at once what waits, of which a part may have left already, and all that follows."""
        self.out.flush()
        self._unbounded()
        if self.into is not None:
            self.into.flush()
            self.into = None

    def shape(self, link: Link, cap: Callable[[int], float]) -> None:
        """Let what is sent from now on go through a link."""
        self.out = Flow(link, cap, self._write)

    def _write(self, data: memoryview) -> None:
        if not self.transport.is_closing():
            self.transport.write(bytes(data))

    def put(self, frame: bytes, then: Callable[[], object] = lambda: None, **more: Any) -> None:
        self.out.put(frame, then, **more)

    def say(self, message: Any, index: int = 0) -> None:
        """Send a word of the driver's own, behind what waits."""
        codec = self.owner.wires.up
        self.put(codec.encode(message, index, -1, max(0, self.owner.env.now)))

    def data_received(self, data: bytes) -> None:
        self.heard_s = time.monotonic()
        self.owner.env.hear(lambda: self._received(data))

    def _received(self, data: bytes) -> None:
        if self.into is None:
            self._parse(memoryview(data))
        elif self.into.left > QUEUE * self.parser.most:
            self.owner.malformed(self, Malformed(f"more than {QUEUE} messages that wait"))
        else:
            self.into.put(data)

    def _parse(self, data: memoryview) -> None:
        if self.closing:
            return
        try:
            for frame in self.parser.feed(data):
                self.owner.taken(self, self.codec.decode(frame))
                if self.closing:
                    return
        except Malformed as fault:
            self.owner.malformed(self, fault)

    def take_through(self, link: Link) -> None:
        """Let what comes from now on go through the server's own link."""
        self.into = Flow(link, unbounded, self._parse)

    def connection_lost(self, error: Exception | None) -> None:
        self.out.cut()
        self.closed.set()
        if self.into is not None and self.into.waiting:
            self.into.put(b"", self._ended)  # behind what came before
        else:
            self._ended()

    def _ended(self) -> None:
        if not self.closing:
            self.closing = True
            self.owner.env.hear(lambda: self.owner.broken(self))

    def leave(self) -> None:
        """Close it behind what has passed the link."""
        self._close()
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self._close()
        if self.transport is not None:
            self.transport.abort()

    def _close(self) -> None:
        self.closing = True
        self.out.cut()
