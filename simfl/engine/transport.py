"""Messages on their way: links, mailboxes, and the losses that are planned for a point of sending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simfl.engine.devices import Job, UserRound
from simfl.engine.setup import ModelDownload
from simfl.protocols.machine import SERVER, Message, name_of
from simfl.results.trace import Sent

if TYPE_CHECKING:
    from simfl.engine.session import Session

FOLLOWING = {"training": "upload", "upload": "recovery"}
"""The phase in which a user is missed that is lost after it has done its part of another."""


class Transport:
    """Carries a session's messages; `job` is always the step's job that sends."""

    def __init__(self, session: Session) -> None:
        self.session = session
        follows = session.machines.kind.model_with
        self.model_with = follows[not session.world.overlap] if follows else None

    def down(self, job: Job, to: int, message: Message, step: int) -> None:
        """From the server to a user; the model follows the message that the protocol says."""
        session = self.session
        transmission = ToUser(self, message, SERVER, to, job.round, step)
        task = transmission.task = session.task_of(to, job.round, transmission.message.subject)
        if task is not None:
            if task.lost:
                transmission.broke(0)
                return
            task.coming += 1
        session.network.link(to, up=False).send(transmission)
        if task is not None and message.kind == self.model_with:
            self.down(job, to, ModelDownload(task.weights, task.id), step)

    def deliver(self, transmission: Transmission, cause: int) -> None:
        """At a user's device: a step of its protocol lane."""
        session, to, task = self.session, transmission.to, transmission.task
        job = self._job(transmission, session.client_of(to, task), cause, task)
        if isinstance(transmission.message, ModelDownload):
            assert task is not None
            job.run, job.then = list, lambda step: session.training.downloaded(task, step)
        session.device(to).protocol.put(job)

    def up(self, job: Job, user: int, message: Message, step: int) -> None:
        """From a user to the server, unless the user is lost at this point."""
        task, session = job.task, self.session
        plan = task.plan if task is not None and task.plan and task.plan.point == message.point else None
        if task is not None and message.point == "upload":
            task.uploading = True
        if plan is None or task is None:
            self._transfer(job, user, message, step)
        elif plan.when == "before_send":
            session.lose(task, message.phase, f"before {message.kind} was sent", step)
        elif plan.when == "delay":
            later = session.env.now + plan.delay_ns
            session.env.at(later, lambda: self._transfer(job, user, message, step))
        else:
            self._transfer(job, user, message, step, plan.when)

    def _transfer(self, job: Job, user: int, message: Message, step: int, fate: str = "") -> None:
        session, task = self.session, job.task
        if task is not None and task.lost:  # while it was delayed
            return
        transmission = ToServer(self, message, user, SERVER, job.round, step)
        transmission.task = task
        transmission.fate = fate
        if fate == "mid_send":
            transmission.size_bytes //= 2
        session.network.link(user, up=True).send(transmission)

    def receive(self, transmission: Transmission, cause: int) -> None:
        """At the server: a step of its lane."""
        session, message, task = self.session, transmission.message, transmission.task
        job = self._job(transmission, session.machine_of(task), cause, None)
        if message.point == "upload" and task is not None:
            task.delivered, task.arrived, task.phase = True, session.env.now, "recovery"
            job.then = lambda step: session.on_processed(task, step)
        elif task is None:
            job.then = lambda step: session.on_heard(transmission.sender)
        session.server.protocol.put(job)

    def _job(self, transmission: Transmission, machine: Any, cause: int, task: UserRound | None) -> Job:
        """The call that a transmission is to its receiver's machine."""
        m, now = transmission.message, self.session.env.now
        arguments = (transmission.sender, m)  # by position, as half of all rows are made of these
        return Job(
            machine,
            "receive",
            arguments,
            m.phase,
            cause,
            now,
            transmission.round,
            m.kind,
            m.subject,
            task,
            True,
        )


class Transmission:
    """A message on its way, as its link and as the trace see it: `size_bytes` leave of its `whole_bytes`."""

    __slots__ = (
        "at", "latency_ns", "message", "post", "relayed", "round", "sender", "size_bytes", "step",
        "task", "to", "whole_bytes",
    )  # fmt: skip
    latency_ns: int
    task: UserRound | None

    def __init__(
        self, post: Transport, message: Message, sender: int, to: int, index: int, step: int
    ) -> None:
        self.post = post
        self.message = message
        self.sender = sender
        self.to = to
        self.round = index
        self.step = step
        self.at = post.session.env.now
        self.relayed = message.relayed
        self.size_bytes = self.whole_bytes = message.size_bytes

    def sent(self) -> None:
        """Its last bit has left."""

    def broke(self, moved_bytes: int) -> int:
        """It broke off; returns the row."""
        self.post.session.progress.broken += 1
        return self.row(moved_bytes, None)

    def row(self, moved_bytes: int, arrived: int | None) -> int:
        """Put what became of it into the trace."""
        m, about = self.message, name_of(self.message.subject)
        row = Sent._make((
            self.round, self.sender, self.to, m.kind, m.phase, about, self.whole_bytes, moved_bytes,
            self.step, self.at, arrived,
        ))  # fmt: skip
        return self.post.session.trace.add(row)


class ToUser(Transmission):
    """From the server to a user."""

    __slots__ = ()

    def arrived(self) -> None:
        """It is there, whole."""
        self.post.deliver(self, self.row(self.size_bytes, self.post.session.env.now))
        if self.task is not None:
            self.task.coming -= 1


class ToServer(Transmission):
    """From a user to the server; of one that is lost amid sending, half."""

    __slots__ = ("fate",)
    fate: str

    def sent(self) -> None:
        task, message, session = self.task, self.message, self.post.session
        if task is None:
            return
        if self.fate == "mid_send":
            session.lose(task, message.phase, f"amid sending {message.kind}", self.broke(self.size_bytes))
            return
        if message.phase in FOLLOWING:
            task.phase = FOLLOWING[message.phase]
        if self.fate == "after_send":
            phase = FOLLOWING.get(message.phase, message.phase)
            session.lose(task, phase, f"after sending {message.kind}", self.step)

    def arrived(self) -> None:
        """It is there; the half of one that broke off counts for nothing."""
        if self.fate != "mid_send":
            self.post.receive(self, self.row(self.size_bytes, self.post.session.env.now))
