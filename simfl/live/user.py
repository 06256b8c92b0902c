"""A user of a live run: the engine's session around one user, whose server is at the other end of a socket.

When it trains, is lost, is in flight, is `UserRound`'s to say, as in virtual time. A user that is lost closes
its connection, and opens another one for the rounds to come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any

import simpy

from simfl.dataplane.eager import EagerOps
from simfl.engine.devices import Device, Job
from simfl.engine.session import Session
from simfl.engine.setup import ModelDownload, RunConfig
from simfl.engine.transport import ToUser
from simfl.engine.user_round import UserRound
from simfl.live.connection import Connection, LiveNetwork, Owner
from simfl.live.real_time import either
from simfl.live.shaping import Link
from simfl.live.wire import Bye, Done, Envelope, Free, Hello, Malformed, Over, Part, Rows, Start
from simfl.population.dropout import PlannedLoss
from simfl.protocols.machine import SERVER, Result, Subject
from simfl.results.trace import row_lines

ROWS = 200  # of the trace in one frame
KEPT = 2  # rounds of which messages may still come


class LiveUser(Owner, Session):
    """tasks: its parts, by the number of the round or of the cycle. finished: set when the run is over for
    it, or the server is gone."""

    def __init__(
        self, wires: Any, user: int, address: tuple[str, int], worker: Executor, world: RunConfig, *parts: Any
    ) -> None:
        self.user, self.address, self.worker = user, address, worker
        self.connected: Connection | None = None
        self.tasks: dict[int, UserRound] = {}
        self.asked: set[int] = set()
        self.finished = asyncio.Event()
        self._dialling: asyncio.Task[None] | None = None
        super().__init__(wires, replace(world, network=partial(LiveNetwork.of, self, True)), *parts)
        self.training_ops = EagerOps(self.machines.params.q)
        self.training_ops.timed, self.training_ops.now_ns = self.ops.timed, self.ops.now_ns
        self.disconnections: Any = self  # a connection that breaks needs no report: it is closed

    # -- the connection
    async def run(self) -> None:
        """Take part until the server says that the run is over, or is gone."""
        await self._dial()
        await either(self.finished, self.env.failed)
        self.env.stop()

    async def _dial(self) -> None:
        def made() -> Connection:
            return Connection(self, self.wires.down, self.wires.most_bytes, SERVER)

        try:
            _, connection = await asyncio.get_running_loop().create_connection(made, *self.address)
        except OSError:  # there is no server any more
            self.finished.set()
            return
        self.connected = connection
        self.greet(connection)
        rate = self.wires.rate(self.user, up=True)
        connection.shape(Link(self.env, rate), rate)

    def greet(self, connection: Connection) -> None:
        """Say who is there."""
        connection.say(Hello(self.user, self.wires.token))

    def report(self, *_: Any) -> None:
        """A user is lost: close its connection behind what has left, and open another one."""
        connection, self.connected = self.connected, None
        if connection is not None:
            connection.leave()
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    def connection_of(self, user: int) -> Connection | None:
        return self.connected

    def broken(self, connection: Connection) -> None:
        """The server closed the connection: what it asked for in a round is not wanted any more."""
        if connection is self.connected and not self.finished.is_set():
            for task in self.tasks.values():
                self.release(task)
            self.report()

    def malformed(self, connection: Connection, fault: Malformed) -> None:
        connection.abort()
        self.broken(connection)

    # -- what the server says
    def taken(self, connection: Connection, envelope: Envelope) -> None:
        index = envelope.round
        match envelope.message:
            case Start(origin):
                self.env.start(origin)
            case Part(point, when, delay_ns, cycle):
                number = index if cycle is None else cycle
                made = self.part(index, cycle, PlannedLoss(point, when, delay_ns) if point else None)
                self.tasks = {k: task for k, task in self.tasks.items() if k > number - KEPT} | {number: made}
            case Over():
                self.asked.add(index)
                self._tell_free()
            case Bye():
                self._leave(connection)
            case _:
                self.take(envelope)

    def part(self, index: int, cycle: int | None, plan: PlannedLoss | None) -> UserRound:
        """Return what is to be done for a round, or for a cycle."""
        nobody: Any = None  # the server's machine is elsewhere
        return self.machines.user_round(self.user, index, self.ops, nobody, self.host.weights, plan)

    def take(self, envelope: Envelope) -> None:
        """Take a message of the protocol."""
        task = self.task_of(self.user, envelope.round, envelope.message.subject)
        if task is not None and not task.lost:
            task.coming += 1
            self.later(self.user, False, partial(self._arrived, task, envelope))

    def _arrived(self, task: UserRound | None, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, ModelDownload) and task is not None:
            task.weights = message.weights
        t = ToUser(self.transport, message, SERVER, self.user, envelope.round, envelope.step)
        t.at = min(t.at, envelope.at)
        t.task = task
        t.arrived()

    def _tell_free(self) -> None:
        """Say of rounds that are over that nothing is under way for them any more."""
        for index in sorted(self.asked):
            task = self.tasks.get(index)
            if (task is None or not self.working(task)) and self.connected is not None:
                self.asked.discard(index)
                self.connected.say(Free(), index)

    def finish(self, device: Device, job: Job, step: int) -> None:
        super().finish(device, job, step)
        self._tell_free()

    def _leave(self, connection: Connection) -> None:
        """Report, over a link that is not shaped any more, and leave."""
        self.close()
        connection.unshape()
        for first in range(0, len(self.trace), ROWS):
            connection.say(Rows("".join(row_lines(self.trace[first : first + ROWS]))))
        connection.say(Done(self.steps_ns, self.late_ns, self.held_ns))
        connection.leave()
        self.finished.set()

    # -- what a session asks
    def main(self) -> Generator[simpy.Event, Any, None]:
        yield self.env.event()

    def task_of(self, user: int, index: int, subject: Subject) -> UserRound | None:
        return self.tasks.get(index)

    def members(self, result: Result) -> list[tuple[UserRound, float]]:
        return []

    def at_work(self) -> Iterable[UserRound]:
        return filter(self.working, self.tasks.values())

    def went_offline(self, user: int, why: str, row: int) -> None: ...

    @property
    def awaited(self) -> str:
        return ""
