"""A party's device: lanes that work through jobs one at a time, and cores that the lanes share.

A lane is a process only while it has jobs, so users who wait cost nothing. A job's effects are released
when its virtual duration is over; a job whose task was lost meanwhile releases nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol

import simpy

from simfl.engine.durations import Spans
from simfl.engine.population import Plan
from simfl.engine.virtual import Environment
from simfl.protocols.base import Effects
from simfl.protocols.ops import Handle
from simfl.trace import Step, Trace


@dataclass(eq=False)
class Task:
    """A user's part in one round (or in one cycle of an asynchronous run)."""

    user: int
    round: int
    about: str
    client: Any
    server: Any
    weights: Handle
    ready: bool
    plan: Plan | None
    version: int = 0
    update: Handle | None = None
    clipped: Handle | None = None
    coming: int = 0
    downloaded: bool = False
    started: bool = False
    uploading: bool = False
    delivered: bool = False
    arrived: int = 0
    lost: bool = False
    phase: str = "offline"


@dataclass(slots=True, eq=False)
class Job:
    """A call of a machine (or the engine's own `run`), waiting for its lane.

    task: whose loss makes the job void; received: it costs the per-message overhead; cut: only the first
    half of it is done; then: called with the step's row after its effects were carried out.
    """

    machine: Any
    call: str
    arguments: tuple[Any, ...]
    phase: str
    cause: int
    ready: int
    round: int
    what: str = ""
    about: str = ""
    task: Task | None = None
    received: bool = False
    cut: bool = False
    factor: float = 1.0
    run: Callable[[], Effects] | None = None
    then: Callable[[int], None] | None = None

    def effects(self) -> Effects:
        """Do the real work."""
        if self.run is not None:
            return self.run()
        effects: Effects = getattr(self.machine, self.call)(*self.arguments)
        return effects


class Runs(Protocol):
    """What a lane needs of its session."""

    env: Environment
    trace: Trace

    def execute(self, device: Device, lane: str, job: Job) -> tuple[Effects, Spans]: ...
    def finish(self, device: Device, job: Job, step: int, effects: Effects) -> None: ...


class Device:
    """A device (the server's too): two lanes, the cores they share, and by how much it is slower
    than the machine of the clock (`speed`: slowdown / cores of a server)."""

    def __init__(self, session: Runs, party: int, speed: float, cores: int) -> None:
        self.session = session
        self.party = party
        self.speed = speed
        self.protocol = Lane(self, "protocol")
        self.training = Lane(self, "training")
        self.free = cores
        self.last = -1
        self._waiting: deque[simpy.Event] = deque()

    def acquire(self) -> simpy.Event | None:
        """A core, at once (None) or when the event happens."""
        if self.free:
            self.free -= 1
            return None
        self._waiting.append(self.session.env.event())
        return self._waiting[-1]

    def release(self) -> None:
        """Give the core to who waits longest."""
        if self._waiting:
            self._waiting.popleft().succeed()
        else:
            self.free += 1


class Lane:
    """Jobs in order of arrival, one at a time."""

    def __init__(self, device: Device, name: str) -> None:
        self.device = device
        self.name = name
        self.jobs: deque[Job] = deque()
        self.last = -1
        self.process: simpy.Process | None = None
        self.current: Running | None = None

    def put(self, job: Job) -> None:
        """Queue a job; an idle lane wakes up."""
        self.jobs.append(job)
        if self.process is None:
            self.process = self.device.session.env.process(self._run())

    def has(self, task: Task) -> bool:
        """Whether the lane works on a task, or will."""
        running = self.current is not None and self.current.job.task is task
        return running or any(job.task is task for job in self.jobs)

    def interrupt(self, task: Task) -> int:
        """Stop the job in progress if it is a lost task's; returns the row of the broken step, or -1."""
        if self.current is None or self.current.job.task is not task or self.process is None:
            return -1
        self.process.interrupt()
        return self.record()

    def _run(self) -> Generator[simpy.Event, Any, None]:
        device, session = self.device, self.device.session
        while self.jobs:
            core = device.acquire()
            if core is not None:
                yield core
            job = self.jobs.popleft()
            if job.task is not None and job.task.lost:
                device.release()
                continue
            start, blocker = session.env.now, device.last if core is not None else self.last
            effects, spans = session.execute(device, self.name, job)
            self.current = Running(job, start, spans, blocker if start > job.ready else -1)
            try:
                if any(ns for _, ns in spans):
                    yield session.env.timeout(sum(ns for _, ns in spans))
            except simpy.Interrupt:
                pass
            step = self.record()
            device.release()
            if job.task is None or not job.task.lost:
                session.finish(device, job, step, effects)
        self.process = None

    def record(self) -> int:
        """Put the step in progress, if any, into the trace, as far as it has come; returns the row."""
        if self.current is None:
            return -1
        running, self.current = self.current, None
        job, now = running.job, self.device.session.env.now
        segments, left = running.until(now)
        self.last = self.device.last = self.device.session.trace.add(
            Step(
                round=job.round,
                party=self.device.party,
                lane=self.name,
                call=job.call,
                what=job.what,
                about=job.about,
                cause=job.cause,
                previous=running.blocker,
                ready=job.ready,
                start=running.start,
                end=now,
                segments=segments,
                left=left,
            )
        )
        return self.last


@dataclass(frozen=True, slots=True)
class Running:
    """A step in progress: `blocker` is the step that kept it from starting when it was ready."""

    job: Job
    start: int
    spans: Spans
    blocker: int

    def until(self, now: int) -> tuple[Spans, int]:
        """The segments as far as they have come, and the nanoseconds that are left."""
        done, left = [], now - self.start
        for phase, ns in self.spans:
            done.append((phase, min(ns, left)))
            left -= done[-1][1]
        return tuple(done), sum(ns for _, ns in self.spans) - (now - self.start)
