"""A connection between a user and the server, as either of them holds it."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import simpy

from simfl.dataplane.work import Segment
from simfl.engine.devices import Device, Job, Runtime
from simfl.engine.links import Transmission
from simfl.live.hello import Admission
from simfl.live.real_time import RealTime
from simfl.live.shaping import Flow, Link
from simfl.live.wire import Codec, Malformed, Parser
from simfl.virtual_time import nanoseconds
from simfl.world.links import Links, ServerLink

if TYPE_CHECKING:
    from simfl.live.connected_server import ConnectedServer
    from simfl.live.user import LiveUser

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
class Sockets:
    """The place of a live run's sockets, and its processes' work for links: by default all, on the loopback.

    Attributes:
        has_links: There are rates and latencies, as the scenario states them.
        shapes_rates: The processes themselves limit rates.
        adds_latency: The receiver of a message waits for its latency.
        address: That of the server.
        at_server: Lets the server's thread be where the server is.
        enter_user: Lets a process be where a user is until it ends.
    """

    has_links: bool = True
    shapes_rates: bool = True
    adds_latency: bool = True
    address: str = "127.0.0.1"
    at_server: Callable[[], AbstractContextManager[None]] = nullcontext
    enter_user: Callable[[int], None] = lambda user: None


@dataclass(frozen=True)
class WireConfig:
    """The sockets' side of a protocol's run."""

    up: Codec
    """Of messages to the server."""
    down: Codec
    """Of messages to users."""
    most_bytes: int
    """The longest frame."""
    admission: Admission
    links: Links | None
    """Those of users; None where nothing is shaped or delayed."""
    server_link: ServerLink | None
    """The server's own; None as above."""
    jitter: Callable[[int, bool], Iterator[float] | None] | None
    """By a user and whether its uplink is meant, by how many seconds each latency is longer."""
    quota_bytes: int
    """The most that a user may send before its report."""
    join_s: float = 120.0
    """Until when all users must have joined, and for how long a user tries to reach the server."""
    begins_without: bool = False
    """After `join_s` the run begins without the users who have not joined."""
    sockets: Sockets = Sockets()

    def rate(self, user: int, up: bool) -> Callable[[int], float]:
        """Return the rate of a user's link at a time, bit/s."""
        return self._rate(None if self.links is None else partial(self.links, user), up)

    def server_rate(self, up: bool) -> Callable[[int], float]:
        """Return the rate of the server's link at a time; up: to the users."""
        return self._rate(self.server_link, up)

    def _rate(self, link: Callable[[int], Sequence[float]] | None, up: bool) -> Callable[[int], float]:
        if link is None or not self.sockets.shapes_rates:
            return unbounded
        bps, until = 0.0, -1.0

        def rate(now: int) -> float:
            nonlocal bps, until
            if now >= until:
                state = link(now)
                bps, until = float(state[0 if up else 1]), state[-1]
            return bps

        return rate


class LiveRuntime(Runtime):
    """Executes steps in real time.

    Attributes:
        worker: A thread that trains, if there is one, with operations of its own, as a ledger is one step's.
        after_step: Called after each step.
        steps_ns: What steps should have taken.
        late_ns: By how much they took longer, or began late.
        held_ns: The longest real work of a step that was done in line, while the process received nothing.
    """

    env: RealTime
    worker: Executor | None = None
    after_step: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, env: RealTime, *parts: Any) -> None:
        super().__init__(env, *parts)
        self.steps_ns = self.late_ns = self.held_ns = 0

    def prepare(self) -> None:
        """Do nothing: a process that has waited has cold caches as it is."""

    def execute(self, device: Device, lane: str, job: Job) -> simpy.Event | None:
        if self.worker is not None and lane == "training":
            loop, working = asyncio.get_running_loop(), self.env.event()
            doing = loop.run_in_executor(self.worker, self.work, device, lane, job)
            worked = partial(self._worked, device, job, working)
            doing.add_done_callback(lambda done: self.env.call_external(partial(worked, done)))
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
        self.after_step()


class Latencies:
    """Latencies, for which messages wait at their receiver."""

    def __init__(self, env: RealTime, wires: WireConfig) -> None:
        self.env, self.wires = env, wires
        self._last_ns: dict[int, int] = {}
        self._jitter: dict[int, Iterator[float] | None] = {}

    def of(self, user: int) -> int:
        """Return the latency of a user's link now, nanoseconds."""
        links = self.wires.links
        return 0 if links is None else nanoseconds(links(user, self.env.now).latency_s)

    def later(self, user: int, up: bool, then: Callable[[], None]) -> None:
        """Let a message of a user's link arrive after its latency; none overtakes an earlier one."""
        due = self.env.now + (self.of(user) if self.wires.sockets.adds_latency else 0)
        if self.wires.links is not None and self.wires.jitter is not None:
            if user not in self._jitter:
                self._jitter[user] = self.wires.jitter(user, up)
            draws = self._jitter[user]
            due += 0 if draws is None else nanoseconds(next(draws))
        due = self._last_ns[user] = max(due, self._last_ns.get(user, 0))
        self.env.call_at(due, then)


class LiveLink:
    """One direction of a user's link at its sender: in place of the engine's `UserLink`."""

    def __init__(self, network: LiveNetwork, user: int) -> None:
        self.network, self.user = network, user

    @property
    def settling_ns(self) -> int:
        """Until when what has left may still arrive: the end of a connection is as slow as a message."""
        return self.network.latencies.of(self.user)

    def send(self, transmission: Transmission) -> None:
        network, t = self.network, transmission
        connection = network.ends.connection_of(self.user)
        if connection is None:
            t.on_aborted(0)
            return
        frame = network.codec.encode(t.message, t.round, t.step, t.sent_ns)
        connection.put(frame[: len(frame) // 2] if t.is_half else frame, t.on_sent)

    def cut(self) -> None:
        connection = self.network.ends.connection_of(self.user)
        if connection is not None:
            connection.out.cut()


class LiveNetwork:
    """The links of one side. Only the direction in which it sends has anything that can be cut."""

    def __init__(
        self,
        ends: ConnectedServer | LiveUser,
        wires: WireConfig,
        latencies: Latencies,
        up: bool,
        link: type[LiveLink] = LiveLink,
    ) -> None:
        self.ends, self.latencies, self.up = ends, latencies, up
        self.codec = wires.up if up else wires.down
        self._link = link
        self._links: dict[tuple[int, bool], LiveLink] = {}

    def link(self, user: int, up: bool) -> LiveLink:
        if (user, up) not in self._links:
            self._links[user, up] = (self._link if up == self.up else _Far)(self, user)
        return self._links[user, up]

    def pause(self, user: int) -> None:
        self.ends.switched(user, False)

    def resume(self, user: int) -> None:
        self.ends.switched(user, True)

    def is_busy(self, user: int) -> bool:
        """Return True: what is under way is not known at one end."""
        return True

    def close(self) -> None:
        """Leave connections open, for reports."""


class _Far(LiveLink):
    """The direction that the other end sends in."""

    def cut(self) -> None: ...


class Connection(asyncio.Protocol):
    """Frames over a socket.

    Attributes:
        out: Shapes sent frames.
        into: Shapes received frames through the server's own link; None if they pass at once.
        user: User at the other end; -1 before its hello.
        closing: Received bytes are ignored.
        closed: Set once the socket is closed.
        heard_s: Monotonic time of the last received bytes.
    """

    def __init__(
        self, owner: ConnectedServer | LiveUser, codec: Codec, most_bytes: int, user: int = -1
    ) -> None:
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

    def put(self, frame: bytes, then: Callable[[], object] = lambda: None) -> None:
        self.out.put(frame, then)

    def send_control(self, message: Any, index: int = 0) -> None:
        """Send a control message, behind the frames that wait."""
        codec = self.owner.wires.up
        self.put(codec.encode(message, index, -1, max(0, self.owner.env.now)))

    def data_received(self, data: bytes) -> None:
        self.heard_s = time.monotonic()
        self.owner.env.call_external(lambda: self._received(data))

    def _received(self, data: bytes) -> None:
        if self.into is None:
            self._parse(memoryview(data))
        elif self.into.left > QUEUE * self.parser.most:
            self.owner.on_malformed(self, Malformed(f"more than {QUEUE} messages that wait"))
        else:
            self.into.put(data)

    def _parse(self, data: memoryview) -> None:
        if self.closing:
            return
        try:
            for frame in self.parser.feed(data):
                self.owner.on_message(self, self.codec.decode(frame))
                if self.closing:
                    return
        except Malformed as fault:
            self.owner.on_malformed(self, fault)

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
            self.owner.env.call_external(lambda: self.owner.on_broken(self))

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
