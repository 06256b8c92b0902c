"""A user of a live run: the engine's users' side with one user, whose server is at the other end of a socket.

As in virtual time, `UserSide` decides when it trains, is lost, is in flight or is offline. A user that is
lost closes its connection, and opens another one for the rounds to come. While it is offline that one is for
its report alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any

from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import F32, Handle
from simfl.engine.links import Transmission
from simfl.engine.setup import ModelDownload, ProtocolSetup, RunConfig
from simfl.engine.user_round import State, UserRound
from simfl.engine.user_side import UserSide
from simfl.errors import BadInput, cut
from simfl.live.clocks import Offset
from simfl.live.connection import Connection, Latencies, LiveNetwork, LiveRuntime, WireConfig
from simfl.live.hello import RUN, Challenge, Ping, Pong, Ready, Rejected, Rounding, Welcome
from simfl.live.observer import AGAIN_S, PASSING, SELDOM_S
from simfl.live.real_time import RealTime, either
from simfl.live.shaping import Link
from simfl.live.wire import Away, Bye, Done, Envelope, Free, Malformed, Over, Part, Rows, Start
from simfl.protocols.machine import SERVER, UpdateId, name_of
from simfl.trace.rows import row_lines
from simfl.virtual_time import NS
from simfl.world.dropout import PlannedLoss

ROWS = 200  # of the trace in one frame
KEPT = 2  # rounds of which messages may still come
SHAKE_S = 600.0
GONE_S = 2.0
"""After so long without a welcome a server that refuses connections is gone."""
FLUSH_S = 60.0
"""So long the report may take to leave."""
MOST_OFF_S = 60.0
"""Seconds between the run's beginning and the message of it, at most; a false clock is further off."""
MOST_WAITING = 100
"""Messages that may wait at a user, and `MOST_OF_USER` more for each of the run's users."""
MOST_OF_USER = 4


class LiveUser:
    """One user. Its server, as the users' side reaches it, is the connection that this class keeps.

    Attributes:
        dialled: Its latest connection.
        connected: The same, while it takes part.
        tasks: Its latest parts, by round or by cycle.
        asked: Parts of which the server has still to learn that nothing is under way.
        finished: Set when the run is over for it, or the server is gone.
        ended: It was the run that is over.
        offset: Of the server's clock, at the hello and at the end; None where both have one clock.
    """

    def __init__(
        self,
        user: int,
        address: tuple[str, int],
        worker: Executor | None,
        wires: WireConfig,
        config: RunConfig,
        setup: ProtocolSetup,
        *given: Any,
    ) -> None:
        *steps, _rule = given
        self.user, self.address, self.wires, self.config = user, address, wires, config
        self.env = RealTime()
        self.runtime = runtime = LiveRuntime(self.env, config, setup, *steps)
        runtime.worker, runtime.after_step = worker, self._tell_free
        runtime.training_ops = EagerOps(setup.params.q)
        runtime.training_ops.timed, runtime.training_ops.now_ns = runtime.ops.timed, runtime.ops.now_ns
        self.latencies = Latencies(self.env, wires)
        self.users = UserSide(runtime, LiveNetwork(self, wires, self.latencies, up=True), done_at=State.SENT)
        self.users.server = self
        self.presence = self.users.presence
        self.env.call_soon(partial(self.presence.follow, user))
        self.dialled: Connection | None = None
        self.connected: Connection | None = None
        self.tasks: dict[int, UserRound] = {}
        self.asked: set[int] = set()
        self.finished = asyncio.Event()
        self.in_air = 0
        """Messages that wait for their latency to pass."""
        self.ended = False
        self.origin = 0
        self.roundings: dict[int, tuple[Any, str]] = {}
        self.offset = self.first_offset = None if wires.admission.one_clock else Offset()
        self._dialling: asyncio.Task[None] | None = None
        self._tries, self._trying_s = 0, 0.0  # dials since the last welcome, and the time of the first

    # -- the connection
    async def run(self) -> None:
        """Take part until the server says that the run is over, or is gone."""
        self._dialling = asyncio.get_running_loop().create_task(self._dial())
        await self._dialling
        await either(self.finished, self.env.failed)
        self.env.stop()
        if self.ended and self.dialled is not None:  # what is still to be written would go with the loop
            async with asyncio.timeout(FLUSH_S):
                await self.dialled.closed.wait()

    async def _dial(self) -> None:
        def made() -> Connection:
            self.dialled = _ToServer(self, self.wires.down, self.wires.most_bytes, SERVER)
            return self.dialled

        dial, context = asyncio.get_running_loop().create_connection, self.wires.admission.context
        # The server may still be busy with the protocol before.
        within_s = None if context is None else SHAKE_S
        if not self._tries:
            self._trying_s = time.monotonic()
        while not (self.finished.is_set() or self.env.failed.done()):
            if time.monotonic() - self._trying_s > self.wires.join_s:
                self.finished.set()
                return
            if self._tries:  # the last one did not lead to a welcome
                await asyncio.sleep(min(SELDOM_S, AGAIN_S * 1.5 ** min(self._tries, 20)))
            self._tries += 1
            try:
                await dial(made, *self.address, ssl=context, ssl_handshake_timeout=within_s)
                if self.dialled is not None:  # it was not dropped while it was opened
                    return
            except OSError as error:
                is_refused = isinstance(error, ConnectionRefusedError)
                is_gone = is_refused and time.monotonic() - self._trying_s > GONE_S
                if is_gone or not isinstance(error, PASSING):
                    self.finished.set()

    def fail(self, why: str) -> None:
        """Fail the session: the server is another one, or turned the user away."""
        if not self.env.failed.done():
            self.env.failed.set_exception(BadInput(cut(why, 500)))

    def _ask(self, connection: Connection) -> None:
        """Ask for the server's clock, and go on once it is known."""
        assert self.offset is not None
        if not self.offset.known:
            connection.send_control(Ping(time.monotonic_ns()))
        elif self.origin:
            self._leave(connection)
        else:
            self.first_offset = self.offset
            self.get_ready(connection)

    def get_ready(self, connection: Connection) -> None:
        """Say that the user is there, or is offline."""
        if not self.presence.is_online(self.user):
            connection.send_control(Away())
            return
        connection.send_control(Ready())
        self.connected = connection
        rate = self.wires.rate(self.user, up=True)
        connection.shape(Link(self.env, rate), rate)

    # -- what the users' side says to the server
    def on_lost(self, task: UserRound, phase: str, row: int) -> None:
        self._dial_again()

    def on_offline(self, user: int, why: str, row: int, was_lost: bool) -> None:
        """Its links have noticed."""

    def on_online(self, user: int, row: int) -> None:
        """Its links have noticed."""

    def _dial_again(self) -> None:
        """Close a lost user's connection behind what has left, and open another one."""
        connection, self.dialled, self.connected = self.dialled, None, None
        if connection is not None:
            connection.leave()
        if self._dialling is None or self._dialling.done():  # who dials looks then, if the user is online
            self._dialling = asyncio.get_running_loop().create_task(self._dial())

    def switched(self, user: int, now: bool) -> None:
        """Connect again as its device leaves or is back."""
        if now or self.connected is not None:
            self._dial_again()

    def count_return(self, stays: bool = False) -> None:
        """Do nothing: the server counts how often a run gets nowhere."""

    def connection_of(self, user: int) -> Connection | None:
        return self.connected

    def on_broken(self, connection: Connection) -> None:
        """Release all tasks once the server closed the connection: it wants their results no more."""
        ended = self.finished.is_set() or self.env.failed.done()
        if connection is self.dialled and not ended:
            for task in self.tasks.values():
                self.users.release(task)
            self._dial_again()

    def on_malformed(self, connection: Connection, fault: Malformed) -> None:
        connection.abort()
        self.on_broken(connection)

    # -- what the server says
    def on_message(self, connection: Connection, envelope: Envelope) -> None:
        index = envelope.round
        match envelope.message:
            case Challenge(nonce):
                connection.send_control(self.wires.admission.hello(self.user, nonce, RUN, self.origin))
                if self.offset is None or self.origin:
                    self.get_ready(connection)
            case Rejected(why):
                self.fail(why)
            case Welcome():
                self._tries = 0
                if self.offset is not None and not self.origin:
                    self._ask(connection)
            case Pong(sent, at) if self.offset is not None:
                self.offset.take(sent, at)
                self._ask(connection)
            case Start(origin):
                self._start(origin)
            case Part(point, when, delay_ns, cycle):
                self._begin(index, cycle, PlannedLoss(point, when, delay_ns) if point and when else None)
            case Over():
                if (task := self.tasks.get(index)) is not None:
                    self.users.end_task(self.user, task)
                self.asked.add(index)
                self._tell_free()
            case Bye() if self.offset is None or not self.origin:
                self._leave(connection)
            case Bye():
                connection.unshape()
                self.offset = Offset()
                self._ask(connection)
            case _:
                self.take(envelope)

    def _start(self, origin: int) -> None:
        """Start the clock, if the server's word of when the run began is near."""
        now = time.monotonic_ns()
        begun = origin - (0 if self.offset is None else self.offset.ns)
        if abs(now - begun) > MOST_OFF_S * NS:
            self.fail(f"by the server's clock the run began {(now - begun) / NS:.3g} s ago, not just now")
            return
        self.origin = origin
        self.env.start(begun)

    def _begin(self, index: int, cycle: int | None, plan: PlannedLoss | None) -> None:
        """Begin the user's part in a round, or in a cycle; of older ones no messages are taken."""
        server: Any = None  # its machine is elsewhere
        number, update = (index, None) if cycle is None else (cycle, UpdateId(self.user, cycle))
        model = Handle(1, self.runtime.trainer.d, F32)  # before it has come
        task = UserRound.begin(self.runtime.setup, self.user, index, server, model, plan, update)
        self.users.begin(task)
        if self.wires.admission.reveals:
            self.roundings[number] = task.entropy, f"quantise{name_of(task.id)}"
        self.tasks = {k: task for k, task in self.tasks.items() if k > number - KEPT} | {number: task}
        for old in tuple(self.users.tasks[self.user]):
            is_over = old.state >= State.SENT or not self.users.in_flight(old)
            if is_over and old not in self.tasks.values():
                self.users.forget(old)

    def take(self, envelope: Envelope) -> None:
        """Take a message of the protocol."""
        task = self.tasks.get(envelope.round)
        if task is not None and not task.is_lost:
            task.inbound += 1
            self._later(partial(self._arrived, task, envelope))

    def _later(self, then: Callable[[], None]) -> None:
        """Let a message arrive a latency later. Malformed if too many wait: a server that floods is left."""
        most = MOST_WAITING + MOST_OF_USER * self.config.users
        if self.in_air + len(self.users.device(self.user).protocol.jobs or ()) >= most:
            raise Malformed(f"more than {most} messages wait")
        self.in_air += 1
        self.latencies.later(self.user, False, partial(self._landed, then))

    def _landed(self, then: Callable[[], None]) -> None:
        self.in_air -= 1
        then()

    def _arrived(self, task: UserRound | None, envelope: Envelope) -> None:
        """A message is there, a latency later."""
        if not self.presence.is_online(self.user):
            return
        message = envelope.message
        if isinstance(message, ModelDownload) and task is not None:
            task.weights = message.weights
        where = SERVER, self.user, envelope.round, envelope.step, task
        t = Transmission(self.runtime, message, *where, self.users)
        t.sent_ns = min(t.sent_ns, envelope.at)
        t.on_arrived()

    def _tell_free(self) -> None:
        """Say of rounds that are over that nothing is under way for them any more."""
        for index in sorted(self.asked):
            task = self.tasks.get(index)
            if (task is None or not self.users.in_flight(task)) and self.connected is not None:
                self.asked.discard(index)
                self.connected.send_control(Free(), index)

    def _leave(self, connection: Connection) -> None:
        """Report, over a link that is not shaped any more, and leave."""
        for device in self.users.devices.values():
            device.close()
        connection.unshape()
        trace = self.runtime.trace
        for first in range(0, len(trace), ROWS):
            connection.send_control(Rows("".join(row_lines(trace[first : first + ROWS]))))
        for number, (entropy, name) in self.roundings.items():
            with suppress(ValueError):  # it did not come to rounding
                connection.send_control(Rounding(entropy.peek(name).hex()), number)
        clock: tuple[Any, ...] = ()
        if self.offset is not None and self.first_offset is not None:
            now, then = self.offset, self.first_offset
            clock = then.ns, now.ns - then.ns, now.error_ns + then.error_ns
        connection.send_control(
            Done(self.runtime.steps_ns, self.runtime.late_ns, self.runtime.held_ns, *clock)
        )
        connection.leave()
        self.ended = True
        self.finished.set()


class _ToServer(Connection):
    """A connection that sends nothing before the server's certificate is checked against the pin."""

    owner: LiveUser

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if why := self.owner.wires.admission.pinned(transport):
            self.closing = True
            self.owner.fail(why)
            transport.close()
