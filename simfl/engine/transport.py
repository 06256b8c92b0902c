"""Messages on their way: links, mailboxes, and steps at the receivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simfl.engine.devices import Job
from simfl.engine.setup import ModelDownload, Stop
from simfl.engine.user_round import Loss, UserRound
from simfl.protocols.contracts import AnyServer, ClientMachine
from simfl.protocols.machine import SERVER, Message, name_of
from simfl.results.trace import Sent

if TYPE_CHECKING:
    from simfl.engine.session import Session


class Transport:
    """Carries a session's messages; `job` is always the step's job that sends."""

    def __init__(self, session: Session) -> None:
        self.session = session

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
        if task is not None and session.host.model_follows(message):
            self.down(job, to, session.host.model_of(task), step)

    def deliver(self, transmission: Transmission, cause: int) -> None:
        """At a user's device: a step of its protocol lane; but the word to stop is heard at once."""
        session, to, task = self.session, transmission.to, transmission.task
        if isinstance(transmission.message, Stop):
            assert task is not None
            session.release(task)
            return
        job = self._job(transmission, session.client_of(to, task), cause, task)
        if isinstance(transmission.message, ModelDownload):
            assert task is not None
            task.version = transmission.message.version
            job.run, job.then = list, lambda step: session.training.downloaded(task, step)
        session.device(to).protocol.put(job)

    def up(self, job: Job, user: int, message: Message, step: int) -> None:
        """From a user to the server, unless the user is lost at this point."""
        task = job.task
        if task is None:
            self._transfer(job, user, message, step)
        else:
            answer = task.send(message)
            self.session.follow(task, answer, step, lambda: self._transfer(job, user, message, step))

    def _transfer(self, job: Job, user: int, message: Message, step: int) -> None:
        session, task = self.session, job.task
        if task is not None and task.lost:  # while it was delayed
            return
        transmission = ToServer(self, message, user, SERVER, job.round, step)
        transmission.task = task
        if task is not None and task.breaks_off(message):
            transmission.half = True
            transmission.size_bytes //= 2
        session.network.link(user, up=True).send(transmission)

    def receive(self, transmission: Transmission, cause: int) -> None:
        """Put a message that arrived at the server into its lane, as a step."""
        session, message, task = self.session, transmission.message, transmission.task
        job = self._job(transmission, session.machine_of(task), cause, None)
        if message.point == "upload" and task is not None:
            task.deliver(session.env.now)
            job.then = lambda step: session.on_processed(task, step)
        elif task is None:
            job.then = lambda step: session.on_heard(transmission.sender)
        session.server.protocol.put(job)

    def _job(
        self,
        transmission: Transmission,
        machine: ClientMachine | AnyServer,
        cause: int,
        task: UserRound | None,
    ) -> Job:
        """Return the receiver's call for a transmission."""
        m, now = transmission.message, self.session.env.now
        arguments = (transmission.sender, m)  # by position, as half of all rows are made of these
        index = transmission.round
        return Job(machine, "receive", arguments, m.phase, cause, now, index, m.kind, m.subject, task, True)


class Transmission:
    """A message on its way, as its link and as the trace see it: `size_bytes` leave of its `whole_bytes`."""

    __slots__ = (
        "at", "half", "latency_ns", "message", "relayed", "round", "sender", "size_bytes", "step",
        "task", "to", "transport", "whole_bytes",
    )  # fmt: skip
    latency_ns: int
    task: UserRound | None

    def __init__(
        self, transport: Transport, message: Message, sender: int, to: int, index: int, step: int
    ) -> None:
        self.transport = transport
        self.message = message
        self.sender = sender
        self.to = to
        self.round = index
        self.step = step
        self.at = transport.session.env.now
        self.relayed = message.relayed
        self.half = False
        self.size_bytes = self.whole_bytes = message.size_bytes

    def sent(self) -> None:
        """Hear that the last bit has left."""

    def broke(self, moved_bytes: int) -> int:
        """Note that it broke off; return the row."""
        self.transport.session.progress.broken += 1
        return self.row(moved_bytes, None)

    def row(self, moved_bytes: int, arrived: int | None) -> int:
        """Put what became of it into the trace."""
        m, subject = self.message, name_of(self.message.subject)
        row = Sent._make((
            self.round, self.sender, self.to, m.kind, m.phase, subject, self.whole_bytes, moved_bytes,
            self.step, self.at, arrived,
        ))  # fmt: skip
        return self.transport.session.trace.add(row)


class ToUser(Transmission):
    """From the server to a user."""

    __slots__ = ()

    def arrived(self) -> None:
        """Deliver it whole."""
        self.transport.deliver(self, self.row(self.size_bytes, self.transport.session.env.now))
        if self.task is not None:
            self.task.coming -= 1


class ToServer(Transmission):
    """From a user to the server; of one that is lost amid sending, half."""

    __slots__ = ()

    def sent(self) -> None:
        task = self.task
        if task is None:
            return
        answer = task.left(self.message)
        if isinstance(answer, Loss):
            cause = self.broke(self.size_bytes) if self.half else self.step
            self.transport.session.lose(task, answer.phase, answer.why, cause)

    def arrived(self) -> None:
        """Deliver it; the half of one that broke off counts for nothing."""
        if self.half:
            return
        session, task = self.transport.session, self.task
        row = self.row(self.size_bytes, session.env.now)
        if task is not None and (loss := task.not_counted(self.message)):
            session.lose(task, *loss, row)
        else:
            self.transport.receive(self, row)
