"""A party's device: lanes that work through jobs one at a time, and cores that the lanes share.

A lane has an event pending only while it works, so users who wait cost nothing. A job's effects are released
when its virtual duration is over; a job whose task was lost meanwhile releases nothing.

A `Runtime` executes the jobs: real work now, its duration by the clock. The server's side and the users' side
of a simulation share one; in a live run each process has its own. It never looks at content.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import simpy

from simfl.dataplane.ops import Ops, Trainer
from simfl.dataplane.work import Segment
from simfl.engine.clocks import Clock, Spans
from simfl.engine.environment import Environment
from simfl.engine.life import Life, Waits
from simfl.engine.progress import StallDetector
from simfl.engine.setup import ProtocolSetup, RunConfig
from simfl.errors import RunFailed, step_failed
from simfl.protocols.contracts import AnyServer, ClientMachine
from simfl.protocols.machine import Effect, Effects, Ignore, Refuse, Send
from simfl.random_streams import Streams
from simfl.trace import rows
from simfl.trace.codes import Subject, name_of
from simfl.trace.rows import SERVER, Step, Trace

if TYPE_CHECKING:
    from simfl.engine.energy import Meter
    from simfl.engine.user_side import UserRound


@dataclass(slots=True, eq=False)
class Job:
    """A call of a machine (or the engine's own `run`), waiting for its lane.

    `start` and `blocker` are set when the job begins; `end`, `spans`, `outcome` when its real work is done.
    Times are virtual nanoseconds; `cause` and `blocker` are rows of the trace.
    """

    machine: ClientMachine | AnyServer | None
    call: str
    """Method of the machine."""
    arguments: tuple[Any, ...]
    phase: str
    """Phase in which the step begins."""
    cause: int
    """Row that made the job ready."""
    ready: int
    """Time at which it was queued."""
    round: int
    what: str = ""
    """Kind of the message, name of the timer, or minibatches done: as in the trace."""
    subject: Subject = None
    """Update that the step is about, if any."""
    task: UserRound | None = None
    """Task whose loss makes the job void."""
    received: bool = False
    """The step costs the overhead of a message."""
    cut: bool = False
    """Only the first half of the work is done."""
    factor: float = 1.0
    """Noise of the training time."""
    run: Callable[[], Effects] | None = None
    """Called in place of the machine's method."""
    then: Callable[[int], None] | None = None
    """Called with the step's row once its effects were carried out."""
    start: int = field(init=False)
    end: int = field(init=False)
    spans: Spans = field(default=(), init=False)
    """Duration of each segment."""
    blocker: int = field(init=False)
    """Step that kept the job from starting when it was ready."""
    outcome: Effects = field(init=False)
    """Effects that the call returned."""

    def until(self, now: int) -> tuple[Spans, int]:
        """Return the segments as far as they have come, and the nanoseconds that are left."""
        if not self.spans:  # in real time only: a thread is still at its work
            return ((self.phase, now - self.start),), 0
        if now == self.end:
            return self.spans, 0
        if now > self.end:  # in real time only: the machine was late, and the last segment lasted until now
            *first, (phase, ns) = self.spans
            return (*first, (phase, ns + now - self.end)), 0
        done, remaining_ns = [], now - self.start
        for phase, ns in self.spans:
            done.append((phase, min(ns, remaining_ns)))
            remaining_ns -= done[-1][1]
        return tuple(done), self.end - now

    def run_call(self) -> Effects:
        if self.run is not None:
            return self.run()
        effects: Effects = getattr(self.machine, self.call)(*self.arguments)
        return effects


class Side(Protocol):
    """A side of a session, as its devices see it."""

    def complete(self, effects: Effects) -> None:
        """Do what belongs to a step's real work beside the machine's call."""

    def finish(self, device: Device, job: Job, step: int) -> None:
        """Carry out the effects of a finished job; step: its row."""


class Runtime:
    """Environment, trace and clock of the sides of one process, and the execution of their steps."""

    meter: Meter | None = None
    """Books energy, where the scenario counts it."""

    def __init__(
        self,
        env: Environment,
        config: RunConfig,
        setup: ProtocolSetup,
        ops: Ops,
        clock: Clock,
        trainer: Trainer,
        streams: Streams,
    ) -> None:
        self.env = env
        self.config = config
        self.setup = setup
        self.ops = self.training_ops = ops
        self.clock = clock
        ops.timed = clock.measures
        if clock.measures:
            ops.now_ns = trainer.timer.now_ns
        self.trainer = trainer
        self.streams = streams
        self.trace = Trace()
        self.trace.timed_by = clock.timed_by
        self.progress = StallDetector(config.users, self.trace)

    def execute(self, device: Device, lane: str, job: Job) -> simpy.Event | None:
        """Do a job's real work, and set its `outcome` and, in `spans`, the time that it takes. Where another
        thread does it, return the event that it is done."""
        self.charge(device, lane, job, self.work(device, lane, job))
        return None

    def work(self, device: Device, lane: str, job: Job) -> list[Segment]:
        """Do a job's real work; return what it was."""
        ops = self.training_ops if lane == "training" else self.ops
        measures, codec = self.clock.measures, self.config.codec
        collecting = measures and gc.isenabled()
        if collecting:
            gc.disable()
        where = (self.setup.name, job.round, device.party, job.call, job.what)
        if measures:
            self.prepare()
        try:
            ops.begin_step(where, job.phase)
            if codec and job.received:
                ops.charge_codec(job.arguments[1].size_bytes)
            job.outcome = job.run_call()
            if codec:  # a message for many is encoded once
                for message in {
                    id(e.message): e.message for e in job.outcome if isinstance(e, Send)
                }.values():
                    ops.charge_codec(message.size_bytes)
            job.arguments = ()  # done with: what a message carried is not kept for as long as the step takes
            device.side.complete(job.outcome)
            return ops.end_step()
        except ValueError as error:  # what a kernel refuses, such as an update that is not finite
            raise step_failed(where, "", error) from error
        finally:
            if collecting:
                gc.enable()

    def charge(self, device: Device, lane: str, job: Job, segments: list[Segment]) -> None:
        """Set how long a job takes whose work is done."""
        overhead_ns = self.config.overhead_ns if job.received else 0
        key = (job.round, device.party, lane, job.call, job.what)
        job.spans = self.clock.spans(key, segments, device.slowdown * job.factor, overhead_ns, job.cut)

    def finish(self, device: Device, job: Job, step: int) -> None:
        """Carry out the effects of a finished job; step: its row."""
        device.side.finish(device, job, step)

    def prepare(self) -> None:
        """Make the machine ready for a step that is timed."""
        self.clock.prepare()

    def note(self, effect: Effect, party: int, index: int, step: int) -> None:
        """Put a message that a party's machine did not take into the trace.

        Raises:
            RunFailed: It is another effect, which only servers have.
        """
        if not isinstance(effect, Ignore | Refuse):
            remedy = "which is for servers: return Send, Ready, Ignore or Refuse"
            what = f"its machine returned {type(effect).__name__}"
            raise RunFailed(f"{self.setup.name}: user {party}: {what}, {remedy}")
        kind = rows.Ignored if isinstance(effect, Ignore) else rows.Refused
        about = name_of(effect.subject)
        self.trace.add(
            kind(index, party, effect.sender, effect.message, about, effect.why, step, self.env.now)
        )


class Device:
    """A device, the server's too: two lanes, and the cores they share.

    Attributes:
        slowdown: By how much it is slower than the machine of the clock; of a server, slowdown / cores.
        side: To which its party belongs.
    """

    __slots__ = (
        "_queue", "free", "last", "off", "party", "protocol", "runtime", "side", "slowdown", "training",
    )  # fmt: skip

    def __init__(self, runtime: Runtime, party: int, slowdown: float, cores: int, side: Side) -> None:
        self.runtime = runtime
        self.party = party
        self.slowdown = slowdown
        self.side = side
        self.protocol = Lane(self, "protocol")
        self.training = Lane(self, "training")
        self.free = cores
        self.off = False
        self.last = -1
        self._queue: list[simpy.Event] = []

    def core(self) -> simpy.Event:
        """Queue for a core, as none is free; return the event that one is handed over."""
        self._queue.append(self.runtime.env.event())
        return self._queue[-1]

    def release(self) -> None:
        """Hand the core over to the lane that waits longest."""
        if self._queue:
            self._queue.pop(0).succeed()
        else:
            self.free += 1

    def power(self, on: bool) -> None:
        """Turn the device on, or off: its steps are then interrupted, and queued jobs stay."""
        self.off = not on
        for lane in (self.protocol, self.training):
            lane.wake() if on else lane.halt()

    def has(self, task: UserRound) -> bool:
        """Return True if a lane works on a task, or will."""
        return self.protocol.has(task) or self.training.has(task)

    def close(self) -> None:
        """Put the steps in progress into the trace, as far as they have come."""
        self.protocol.record()
        self.training.record()


class Lane:
    """Jobs in order of arrival, one at a time, each on a core: a life as long as there are any."""

    __slots__ = ("current", "device", "jobs", "last", "life", "name")

    def __init__(self, device: Device, name: str) -> None:
        self.device = device
        self.name = name
        self.jobs: deque[Job] | None = None
        self.last = -1
        self.life: Life | None = None
        self.current: Job | None = None

    def put(self, job: Job) -> None:
        if self.jobs is None:
            self.jobs = deque()
        self.jobs.append(job)
        self.wake()

    def wake(self) -> None:
        """Begin to work, unless it works already or has nothing to do."""
        if self.life is None and self.jobs:
            self.life = Life(self.device.runtime.env, self.work())

    def has(self, task: UserRound) -> bool:
        """Return True if the lane works on a task, or will."""
        running = self.current is not None and self.current.task is task
        return running or any(job.task is task for job in self.jobs or ())

    def interrupt(self, task: UserRound) -> int:
        """Stop the job in progress if it is a lost task's; return the row of the broken step, or -1."""
        return -1 if self.current is None or self.current.task is not task else self.halt()

    def halt(self) -> int:
        """Stop the job in progress, if any; return the row of the broken step, or -1."""
        row = self.record()
        if row >= 0:
            assert self.life is not None
            self.life.interrupt()
        return row

    def work(self) -> Waits:
        """Do the jobs until none is left or the device is off."""
        device, runtime, jobs = self.device, self.device.runtime, self.jobs
        env, name = runtime.env, self.name
        while jobs and not device.off:
            blocker = self.last
            if device.free:
                device.free -= 1
            else:
                yield device.core()
                blocker = device.last
                if device.off:
                    device.release()
                    continue
            job = jobs.popleft()
            task = job.task
            if task is not None and task.lost:
                device.release()
                continue
            job.start = start = env.now
            job.blocker = blocker if start > job.ready else -1
            self.current = job
            try:
                if (working := runtime.execute(device, name, job)) is not None:
                    yield working
                spans = job.spans
                job.end = start + (spans[0][1] if len(spans) == 1 else sum(ns for _, ns in spans))
                if job.end > start:
                    if runtime.meter is not None:
                        runtime.meter.began(device.party, job)
                    yield job.end - env.now
            except simpy.Interrupt:  # its row is in the trace
                device.release()
                continue
            step = self.record()
            device.release()
            # A message that the server's machine has taken counts, even if its user is lost meanwhile.
            if task is None or not task.lost or device.party == SERVER:
                runtime.finish(device, job, step)
        self.life = None
        self.jobs = jobs or None  # most users' lanes are idle for most of a run

    def record(self) -> int:
        """Put the step in progress, if any, into the trace, as far as it has come; returns the row."""
        if self.current is None:
            return -1
        job, self.current = self.current, None
        device, runtime = self.device, self.device.runtime
        now = runtime.env.now
        if runtime.meter is not None:
            runtime.meter.stopped(device.party, job)
        segments, left = job.until(now)
        step = Step._make((
            job.round, device.party, self.name, job.call, job.what, name_of(job.subject), job.cause,
            job.blocker, job.ready, job.start, now, segments, left,
        ))  # fmt: skip
        self.last = device.last = row = runtime.trace.add(step)
        return row
