"""A party's device: lanes that work through jobs one at a time, and cores that the lanes share.

A lane has an event pending only while it works, so users who wait cost nothing. A job's effects are released
when its virtual duration is over; a job whose task was lost meanwhile releases nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from simfl.engine.clocks import Spans
from simfl.engine.user_round import UserRound
from simfl.protocols.contracts import AnyServer, ClientMachine
from simfl.protocols.machine import Effects
from simfl.results.trace import SERVER, Step
from simfl.results.trace_codes import Subject, name_of

if TYPE_CHECKING:
    from simfl.engine.session import Session


@dataclass(slots=True, eq=False)
class Job:
    """A call of a machine (or the engine's own `run`), waiting for its lane.

    task: its loss makes the job void. received: it costs the overhead of a message. cut: only its first half
    is done. then: called with the step's row once the effects were carried out. The fields from `start` on
    are set when the job begins, `end` and `spans` when its real work is done; `blocker` is the step that kept
    it from starting when it was ready.
    """

    machine: ClientMachine | AnyServer | None
    call: str
    arguments: tuple[Any, ...]
    phase: str
    cause: int
    ready: int
    round: int
    what: str = ""
    subject: Subject = None
    task: UserRound | None = None
    received: bool = False
    cut: bool = False
    factor: float = 1.0
    run: Callable[[], Effects] | None = None
    then: Callable[[int], None] | None = None
    start: int = field(init=False)
    end: int = field(init=False)
    spans: Spans = field(default=(), init=False)
    blocker: int = field(init=False)
    outcome: Effects = field(init=False)

    def until(self, now: int) -> tuple[Spans, int]:
        """Return the segments as far as they have come, and the nanoseconds that are left."""
        if not self.spans:  # in real time only: a thread is still at its work
            return ((self.phase, now - self.start),), 0
        if now == self.end:
            return self.spans, 0
        if now > self.end:  # in real time only: the machine was late, and the last segment lasted until now
            *first, (phase, ns) = self.spans
            return (*first, (phase, ns + now - self.end)), 0
        done, left = [], now - self.start
        for phase, ns in self.spans:
            done.append((phase, min(ns, left)))
            left -= done[-1][1]
        return tuple(done), self.end - now

    def effects(self) -> Effects:
        if self.run is not None:
            return self.run()
        effects: Effects = getattr(self.machine, self.call)(*self.arguments)
        return effects


class Device:
    """A device (the server's too): two lanes, the cores they share, and by how much it is slower
    than the machine of the clock (`slowdown`: slowdown / cores of a server)."""

    __slots__ = ("_waiting", "free", "last", "off", "party", "protocol", "session", "slowdown", "training")

    def __init__(self, session: Session, party: int, slowdown: float, cores: int) -> None:
        self.session = session
        self.party = party
        self.slowdown = slowdown
        self.protocol = Lane(self, "protocol")
        self.training = Lane(self, "training")
        self.free = cores
        self.off = False
        self.last = -1
        self._waiting: list[Callable[[], None]] = []

    def acquire(self, then: Callable[[], None]) -> bool:
        """Take a core; if none is free return False, and call `then` once it has one."""
        if self.free:
            self.free -= 1
            return True
        self._waiting.append(then)
        return False

    def release(self) -> None:
        """Give the core to the job that waits longest."""
        if self._waiting:
            env = self.session.env
            env.at(env.now, self._waiting.pop(0))
        else:
            self.free += 1

    def power(self, on: bool) -> None:
        """Turn the device on, or off: then its steps are broken off, and what waits for a lane stays."""
        self.off = not on
        for lane in (self.protocol, self.training):
            lane.wake() if on else lane.halt()


class Lane:
    """Jobs in order of arrival, one at a time."""

    __slots__ = ("current", "device", "jobs", "last", "name", "resting")

    def __init__(self, device: Device, name: str) -> None:
        self.device = device
        self.name = name
        self.jobs: deque[Job] | None = None
        self.last = -1
        self.resting = True
        self.current: Job | None = None

    def put(self, job: Job) -> None:
        if self.jobs is None:
            self.jobs = deque()
        self.jobs.append(job)
        self.wake()

    def has(self, task: UserRound) -> bool:
        """Return True if the lane works on a task, or will."""
        running = self.current is not None and self.current.task is task
        return running or any(job.task is task for job in self.jobs or ())

    def interrupt(self, task: UserRound) -> int:
        """Stop the job in progress if it is a lost task's; returns the row of the broken step, or -1."""
        if self.current is None or self.current.task is not task:
            return -1
        self.device.session.env.soon(self._broken)
        return self.record()

    def halt(self) -> None:
        """Break off the job in progress, whoever's it is."""
        if self.record() >= 0:
            self.device.session.env.soon(self._broken)

    def wake(self) -> None:
        """Go on with what waits."""
        if self.resting and self.jobs:
            self.resting = False
            self.device.session.env.soon(self._go_on)

    def _broken(self) -> None:
        self.device.release()
        self._go_on()

    def _go_on(self) -> None:
        """Begin the next job, as soon as there is a core for it; rest if there is none."""
        while self.jobs and not self.device.off:
            if not self.device.acquire(self._begin_late) or self._begin(self.last):
                return
        self.resting = True
        self.jobs = self.jobs or None  # most users' lanes rest for most of a run

    def _begin_late(self) -> None:
        if self.device.off:
            self.device.release()
        elif self._begin(self.device.last):
            return
        self._go_on()

    def _begin(self, before: int) -> bool:
        """Begin the next job; False if it is over at once. `before`: the step that held it up, if any did."""
        assert self.jobs
        device, session = self.device, self.device.session
        job = self.jobs.popleft()
        if job.task is not None and job.task.lost:
            device.release()
            return False
        job.start = start = session.env.now
        job.blocker = before if start > job.ready else -1
        if session.execute(device, self.name, job):
            return self._lasts(job)
        self.current = job
        return True

    def worked(self, job: Job) -> None:
        """Hear that a job's real work is done that was not done at once, unless it was broken off."""
        if self.current is job and not self._lasts(job):
            self._go_on()

    def _lasts(self, job: Job) -> bool:
        """Schedule a job's end; return False if it takes no time, so that it is over."""
        device, session, spans = self.device, self.device.session, job.spans
        job.end = job.start + (spans[0][1] if len(spans) == 1 else sum(ns for _, ns in spans))
        self.current = job
        if job.end > job.start:
            if session.meter is not None:
                session.meter.began(device.party, job)
            session.env.at(job.end, partial(self._end, job))
            return True
        self._complete(job)
        return False

    def _end(self, job: Job) -> None:
        if self.current is job:  # it was not broken off
            self._complete(job)
            self._go_on()

    def _complete(self, job: Job) -> None:
        step = self.record()
        device = self.device
        device.release()
        # A message that the server's machine has taken counts, even if its user is lost meanwhile.
        if job.task is None or not job.task.lost or device.party == SERVER:
            device.session.finish(device, job, step)

    def record(self) -> int:
        """Put the step in progress, if any, into the trace, as far as it has come; returns the row."""
        if self.current is None:
            return -1
        job, self.current = self.current, None
        device = self.device
        now = device.session.env.now
        if device.session.meter is not None:
            device.session.meter.stopped(device.party, job)
        segments, left = job.until(now)
        step = Step._make((
            job.round, device.party, self.name, job.call, job.what, name_of(job.subject), job.cause,
            job.blocker, job.ready, job.start, now, segments, left,
        ))  # fmt: skip
        self.last = device.last = row = device.session.trace.add(step)
        return row
