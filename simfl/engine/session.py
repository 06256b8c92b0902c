"""One protocol's run in virtual time: the part that rounds and buffers share.

A session executes machine calls as jobs on lanes, carries their effects out (messages over links, timers,
losses), and writes the trace. It never looks at content: what needs it (audits, evaluation) leaves as a
`ClosedRound` with handles, for the coroutine that drives it.
"""

import gc
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

import simpy

from simfl.dataplane.ops import Ops, Trainer, seed_array
from simfl.dataplane.work import Segment
from simfl.engine.carry_out import carry_out, close_round
from simfl.engine.checkpoints import Checkpoints
from simfl.engine.clocks import Clock
from simfl.engine.devices import Device, Job
from simfl.engine.energy import Meter
from simfl.engine.environment import Environment
from simfl.engine.life import Life, Waits
from simfl.engine.presence import Disconnections, Presence
from simfl.engine.progress import Progress
from simfl.engine.server_host import ServerHost
from simfl.engine.setup import ClosedRound, ProtocolSetup, RunConfig
from simfl.engine.training import Training
from simfl.engine.transport import Transport
from simfl.engine.user_round import Answer, Delay, Loss, UserRound
from simfl.errors import step_failed
from simfl.learning.server_opt import ServerRule
from simfl.protocols.contracts import AnyServer, ClientMachine
from simfl.protocols.machine import SERVER, Result, Send, Subject, UpdateId, name_of
from simfl.random_streams import Streams
from simfl.results import trace as rows
from simfl.virtual_time import NS


class Session(ABC):
    """One protocol's run on a world."""

    environment: Callable[[], Environment] = Environment

    def __init__(
        self,
        world: RunConfig,
        machines: ProtocolSetup,
        ops: Ops,
        clock: Clock,
        trainer: Trainer,
        streams: Streams,
        rule: ServerRule,
    ) -> None:
        self.world = world
        self.machines = machines
        self.ops = self.training_ops = ops
        self.clock = clock
        ops.timed = clock.timing
        if clock.timing:
            ops.now_ns = trainer.timer.now_ns
        self.trainer = trainer
        self.streams = streams
        self.env = self.environment()
        self.trace = rows.Trace()
        self.trace.timed_by = clock.timed_by
        self.network = world.network(self.env)
        self.presence = Presence(
            self.env,
            self.trace,
            self.network,
            world.days,
            self.went_offline,
            self.came_online,
            self.resting,
            partial(self.count_return, stays=True),
        )
        self.meter = Meter(self) if world.energy_of or world.server_powers else None
        self.transport = Transport(self)
        self.training = Training(self)
        self.disconnections = Disconnections(self)
        self.server = Device(self, SERVER, world.server_slowdown / world.server_cores, cores=1)
        self.devices: dict[int, Device] = {}
        self.outcomes: deque[ClosedRound] = deque()
        self.checkpoints: Checkpoints | None = None
        self.round = 0
        self.start = 0
        self.done = False
        self.progress = Progress(world.users, self.trace)
        seed = seed_array(streams.bytes("initial weights"))
        self.host = ServerHost(machines.kind, ops, trainer, rule, world, seed)
        self.life = Life(self.env, self.main())

    # -- to be implemented by rounds and buffers
    @abstractmethod
    def main(self) -> Waits:
        """Return the generator of the session's life."""

    @abstractmethod
    def task_of(self, user: int, index: int, subject: Subject) -> UserRound | None:
        """Return the task that a message to a user belongs to."""

    def client_of(self, user: int, task: UserRound | None) -> ClientMachine:
        """Return the client machine that takes a message."""
        assert task is not None
        return task.client

    def machine_of(self, task: UserRound | None) -> AnyServer:
        """Return the server machine that takes a message."""
        assert task is not None
        return task.server

    @abstractmethod
    def members(self, result: Result) -> list[tuple[UserRound, float]]:
        """Return the tasks behind a result, with their factors."""

    @abstractmethod
    def at_work(self) -> Iterable[UserRound]:
        """Return the tasks whose global model may still be needed."""

    @abstractmethod
    def went_offline(self, user: int, why: str, row: int) -> None:
        """Act on a user's device that went offline."""

    def came_online(self, user: int, row: int) -> None:
        """Act on a user's device that came back online."""

    def on_round_closed(self, step: int) -> None:
        """Act on the end of a round: with an aggregate, which is applied already, or without."""

    def on_given_up(self, users: Iterable[int], update: UpdateId | None) -> None:
        """Act on users, and an update, that the server gave up."""

    def on_processed(self, task: UserRound, step: int) -> None:
        """Act on a user's upload that the server has processed."""

    def on_heard(self, user: int) -> None:
        """Act on a user's message of no task that the server has processed."""

    def on_discarded(self, update: UpdateId) -> None:
        """Act on an update that the server discarded from its buffer."""

    def on_server_step(self, step: int) -> None:
        """Act on the end of a step of the server."""

    def on_lost(self, task: UserRound) -> None:
        """Act on the loss of a user."""

    def resting(self, user: int) -> bool:
        """Return True if nothing depends on a user's coming and going."""
        return False

    def follow_users(self) -> None:
        """Let all users come and go."""
        if self.world.days is not None:
            for user in range(self.world.users):
                self.presence.follow(user)

    @property
    def first_phase(self) -> str:
        """The phase with which a round begins."""
        return self.machines.first_phase

    def working(self, task: UserRound) -> bool:
        """Return True for a user in flight: something is on its way to or from it, or it works."""
        device = self.device(task.user)
        busy = task.under_way or device.protocol.has(task) or device.training.has(task)
        return busy and not (task.delivered or task.lost)

    # -- steps
    def device(self, user: int) -> Device:
        """Return a user's device, made when it is first used."""
        device = self.devices.get(user)
        if device is None:
            device = Device(self, user, float(self.world.slowdown[user]), int(self.world.cores[user]))
            self.devices[user] = device
        return device

    def at_server(
        self, machine: AnyServer, call: str, argument: Any, cause: int, phase: str, **more: Any
    ) -> None:
        """Queue a call of the server's machine."""
        arguments = () if argument is None else (argument,)
        index = more.pop("round", self.round)
        self.server.protocol.put(Job(machine, call, arguments, phase, cause, self.env.now, index, **more))

    def execute(self, device: Device, lane: str, job: Job) -> simpy.Event | None:
        """Do a job's real work, and set its `outcome` and, in `spans`, the time that it takes. Where another
        thread does it, return the event that it is done."""
        self.charge(device, lane, job, self.work(device, lane, job))
        return None

    def work(self, device: Device, lane: str, job: Job) -> list[Segment]:
        """Do a job's real work; return what it was."""
        ops = self.training_ops if lane == "training" else self.ops
        collecting = self.clock.timing and gc.isenabled()
        if collecting:
            gc.disable()
        where = (self.machines.name, job.round, device.party, job.call, job.what)
        self.ready()
        try:
            ops.begin(where, job.phase)
            if self.world.codec and job.received:
                ops.code(job.arguments[1].size_bytes)
            job.outcome = job.effects()
            if self.world.codec:
                self._encode(job)
            job.arguments = ()  # done with: what a message carried is not kept for as long as the step takes
            # The global update belongs to the step that recovers.
            if device.party == SERVER and self.host.step(job.outcome) and self.checkpoints is not None:
                self.checkpoints.stepped(self)
            return ops.end()
        except ValueError as error:  # what a kernel refuses, such as an update that is not finite
            raise step_failed(where, "", error) from error
        finally:
            if collecting:
                gc.enable()

    def charge(self, device: Device, lane: str, job: Job, segments: list[Segment]) -> None:
        """Say how long a job takes whose work is done."""
        overhead_ns = self.world.overhead_ns if job.received else 0
        key = (job.round, device.party, lane, job.call, job.what)
        job.spans = self.clock.spans(key, segments, device.slowdown * job.factor, overhead_ns, job.cut)

    def ready(self) -> None:
        """Make the machine ready for a step that is timed."""
        self.clock.ready()

    def _encode(self, job: Job) -> None:
        """Charge a step with encoding what it sends, once each: a message for many is encoded for all, and so
        is the global model that follows it."""
        messages = {id(effect.message): effect.message for effect in job.outcome if isinstance(effect, Send)}
        for message in messages.values():
            self.ops.code(message.size_bytes)
        if any(self.host.model_follows(message) for message in messages.values()):
            self.ops.code(self.host.model_bytes)

    def noise(self, task: UserRound) -> float:
        """Return the factor on a training's duration, a draw of the user's own stream."""
        draw = self.world.training_noise
        return 1.0 if draw is None else draw(task.user, name_of(task.id) or task.round)

    def finish(self, device: Device, job: Job, step: int) -> None:
        """Carry out the effects of a finished step."""
        party, task = device.party, job.task
        for effect in job.outcome:
            if party == SERVER:
                if isinstance(effect, Send):
                    self.transport.down(job, effect.to, effect.message, step)
                    continue
            elif task is not None and task.lost:
                break
            elif isinstance(effect, Send):
                self.transport.up(job, party, effect.message, step)
                continue
            carry_out(self, effect, party, job, step)
        if job.then is not None:
            job.then(step)
        if party == SERVER:
            self.on_server_step(step)

    # -- losses
    def follow(self, task: UserRound, answer: Answer, cause: int, then: Callable[[], None]) -> None:
        """Go on with a user as it was answered: at once, later, or not at all."""
        match answer:
            case Loss(phase, why):
                self.lose(task, phase, why, cause)
            case Delay(ns):
                Life(self.env, self._after(ns, then), at_once=True)
            case None:
                then()
            case _:
                assert_never(answer)

    def _after(self, ns: int, then: Callable[[], None]) -> Waits:
        yield ns
        then()

    def lose(self, task: UserRound, phase: str, why: str, cause: int) -> None:
        """Lose a user: its device stops working on this task, and unsent messages are gone."""
        if task.lost:
            return
        broken = self._end_work(task)
        if broken >= 0 and isinstance(self.trace[cause], rows.Presence):
            cause = broken  # what held the round up so far was the training that now ends
        row = self.trace.add(
            rows.Lost(task.round, task.user, name_of(task.id), phase, why, cause, self.env.now)
        )
        self.network.link(task.user, up=True).cut()
        self.part_over(task.user)
        self.on_lost(task)
        self.disconnections.report(task.user, task.id, task.server, phase, row)

    def part_over(self, user: int) -> None:
        """A user does nothing more for a round or a cycle."""
        if self.meter is not None:
            self.meter.leave(user)

    def release(self, task: UserRound) -> None:
        """Stop a user whose update is not wanted any more; an upload that has left arrives all the same."""
        if not (task.lost or task.delivered):  # of the latter, what is on the link is of a later round
            self._end_work(task)
            self.network.link(task.user, up=True).cut()
            self.part_over(task.user)

    def _end_work(self, task: UserRound) -> int:
        """Make void what a user has still to do; return the row of the training that breaks off, or -1."""
        task.lost = True
        return self.device(task.user).training.interrupt(task)

    # -- a run that gets nowhere
    @property
    @abstractmethod
    def awaited(self) -> str:
        """The event for which a run that got no further waited."""

    def count_return(self, stays: bool = False) -> None:
        """Count a user that came back online, or stays as it is; too many stop a run that gets nowhere."""
        self.progress.stays += stays
        self.progress.returns += not stays
        if self.progress.all_return or self.progress.all_failed:
            self.stall(f"{self.progress.comings()}, and {self.awaited}")

    # -- the end of a round
    def close(self) -> None:
        """End the run: work and transfers in progress go into the trace as broken off."""
        self.network.close()
        for device in (self.server, *self.devices.values()):
            for lane in (device.protocol, device.training):
                lane.record()
        if self.meter is not None:
            self.meter.report(self.round - 1)

    def abort_round(self, reason: str, cause: int) -> None:
        """Close the round without an aggregate; the global model stays."""
        row = self.trace.add(rows.Aborted(self.round, reason, cause, self.env.now))
        rate = self.machines.losses.rate_in(self.round)
        self.end_round(cause if cause >= 0 else row, ClosedRound(self.round, self.env.now, None, None, rate))

    def stall(self, why: str) -> None:
        """Stop a run that comes to nothing more: the round in progress is its last."""
        self.abort_round(f"stopped at {self.env.now / NS:.3f} s: {why}", -1)
        self.done = True

    def close_round(self, result: Result) -> ClosedRound:
        """Close the round in progress with this aggregate: its audit and its evaluation are asked for."""
        return close_round(self, result)

    def end_round(self, step: int, closed: ClosedRound) -> None:
        if self.meter is not None:
            self.meter.report(self.round, self.machines.kind.asynchronous)
        self.trace.add(rows.End(self.round, self.start, self.env.now, step))
        self.progress.made()
        self.round += 1
        if self.checkpoints is not None:
            closed = replace(closed, standing=self.checkpoints.standing(self))
        self.outcomes.append(closed)
        self.env.enough = True  # the driver looks at it now
        self.done = self.round >= self.world.rounds
        self.on_round_closed(step)
