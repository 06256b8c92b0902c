"""Messages on their way: links, mailboxes, and the losses that are planned for a point of sending."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simfl.engine.network import Transfer
from simfl.engine.party import Job, Task
from simfl.engine.world import Model
from simfl.protocols.base import SERVER, Message
from simfl.trace import Sent

if TYPE_CHECKING:
    from simfl.engine.session import Session

FOLLOWING = {"training": "upload", "upload": "recovery"}
"""The phase in which a user is missed that is lost after it has done its part of another."""


class Post:
    """Carries a session's messages; `job` is always the step's job that sends."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def down(self, job: Job, to: int, message: Message, step: int) -> None:
        """From the server to a user; the model follows the message that the protocol says."""
        session = self.session
        task = session.task_of(to, job.round, message.about)
        letter = Letter(session, message, SERVER, to, job.round, step)
        if task is not None and task.lost:
            letter.moved(0)
            return

        def arrived() -> None:
            self._deliver(to, message, letter.arrived(), job.round, task)
            if task is not None:
                task.coming -= 1

        if task is not None:
            task.coming += 1
        transfer = Transfer(message.size_bytes, _nothing, arrived, letter.moved)
        session.network.link(to, up=False).send(transfer)
        follows = session.machines.kind.model_with
        if follows and task is not None and message.kind == follows[not session.world.overlap]:
            self.down(job, to, Model(task.weights, task.about), step)

    def _deliver(self, to: int, message: Message, cause: int, index: int, task: Task | None) -> None:
        """At a user's device: a step of its protocol lane."""
        session = self.session
        job = Job(
            machine=session.client_of(to, task),
            call="receive",
            arguments=(SERVER, message),
            phase=message.phase,
            cause=cause,
            ready=session.env.now,
            round=index,
            what=message.kind,
            about=message.about,
            task=task,
            received=True,
        )
        if isinstance(message, Model):
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
        letter = Letter(session, message, user, SERVER, job.round, step)
        part = message.size_bytes // 2 if fate == "mid_send" else message.size_bytes

        def sent() -> None:
            if task is None:
                return
            if fate == "mid_send":
                session.lose(task, message.phase, f"amid sending {message.kind}", letter.moved(part))
                return
            if message.phase in FOLLOWING:
                task.phase = FOLLOWING[message.phase]
            if fate == "after_send":
                phase = FOLLOWING.get(message.phase, message.phase)
                session.lose(task, phase, f"after sending {message.kind}", step)

        def arrived() -> None:
            if fate != "mid_send":
                self._receive(user, message, letter.arrived(), job)

        transfer = Transfer(part, sent, arrived, letter.moved)
        session.network.link(user, up=True).send(transfer)

    def _receive(self, user: int, message: Message, cause: int, sender: Job) -> None:
        """At the server: a step of its lane."""
        session, task = self.session, sender.task
        job = Job(
            machine=session.machine_of(task),
            call="receive",
            arguments=(user, message),
            phase=message.phase,
            cause=cause,
            ready=session.env.now,
            round=sender.round,
            what=message.kind,
            about=message.about,
            received=True,
        )
        if message.point == "upload" and task is not None:
            task.delivered, task.arrived, task.phase = True, session.env.now, "recovery"
            job.then = lambda step: session.on_processed(task, step)
        session.server.protocol.put(job)


class Letter:
    """The trace's side of one message."""

    def __init__(
        self, session: Session, message: Message, sender: int, to: int, index: int, step: int
    ) -> None:
        self.session = session
        self.message = message
        self.head = (index, sender, to, message.kind, message.phase, message.about, message.size_bytes)
        self.step = step
        self.sent = session.env.now

    def arrived(self) -> int:
        """It is there, whole; returns the row."""
        now = self.session.env.now
        return self.session.trace.add(Sent(*self.head, self.message.size_bytes, self.step, self.sent, now))

    def moved(self, part_bytes: int) -> int:
        """It broke off after so many bytes; returns the row."""
        return self.session.trace.add(Sent(*self.head, part_bytes, self.step, self.sent, None))


def _nothing() -> None: ...
