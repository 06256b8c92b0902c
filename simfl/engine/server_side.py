"""The server's side of a session: its machine, the global model, deadlines, and the ends of rounds.

What rounds and buffers share is here. `users` is the other side: in a simulation a `UserSide`, in a live run
the server's ends of connections. Content is never looked at: what needs it (audits, evaluation) leaves as a
`ClosedRound` with handles, for the coroutine that drives the session.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from simfl.dataplane import audit
from simfl.dataplane.handles import F32, F64, Handle
from simfl.dataplane.ops import Ops, Trainer, seed_array
from simfl.engine.devices import Device, Job, Runtime
from simfl.engine.life import Life, Waits
from simfl.engine.links import Transmission
from simfl.engine.presence import Disconnections
from simfl.engine.setup import Aggregate, ClosedRound, ModelDownload, RecordedRound, RunConfig, Stop
from simfl.engine.sides import Network, Receiver, Users
from simfl.engine.user_side import UserRound
from simfl.learning.server_opt import ServerRule
from simfl.protocols.contracts import AnyServer, BufferServer, RoundServer
from simfl.protocols.machine import (
    SERVER,
    Abort,
    Discard,
    Effect,
    Effects,
    GiveUp,
    Ignore,
    Message,
    Ready,
    Refuse,
    Result,
    Send,
    Subject,
    Surplus,
    Timer,
    UpdateId,
    Verdict,
    name_of,
)
from simfl.protocols.protocol import Protocol
from simfl.trace import rows
from simfl.virtual_time import NS

if TYPE_CHECKING:
    from simfl.engine.checkpoints import Checkpoints


class ServerHost:
    """The server around its machine, without a clock: it opens rounds and cycles, and steps the global model.

    Attributes:
        version: t, how many aggregates were applied.
        weights: The global model x^(t), 1 x d float32.
        models: The last ones, which users may be given.
        moments: Memory of an adaptive rule [rows, d], if it has one.
    """

    def __init__(
        self,
        kind: Protocol,
        ops: Ops,
        trainer: Trainer,
        rule: ServerRule,
        config: RunConfig,
        seed: NDArray[np.uint8],
    ) -> None:
        self.kind, self.ops, self.rule, self.lr = kind, ops, rule, config.server_lr
        self.model_with = kind.model_with[not config.overlap] if kind.model_with else None
        self.version = 0
        self.weights = ops.run_uncharged(trainer.initial, (1, trainer.d, F32), seed)
        self.models = deque([self.weights], maxlen=1 + config.max_model_lag)
        self.moments: Handle | None = None
        if rule.rows:
            self.moments = ops.run_uncharged(rule.first, (rule.rows, trainer.d, F64), trainer.d)

    def open_round(self, machine: RoundServer, users: Sequence[int]) -> Effects:
        """Open a round; where there is no offline phase the model goes out at once."""
        effects = machine.start()
        model = ModelDownload(self.weights, version=self.version)
        return effects if self.kind.offline else [*effects, *(Send(user, model) for user in users)]

    def open_cycle(self, machine: BufferServer, task: UserRound, model_lag: int = 0) -> Effects:
        """Begin a user's cycle of an asynchronous run, on the model of `model_lag` versions ago."""
        assert task.id is not None
        model_lag = min(model_lag, machine.version)
        effects = machine.begin(*task.id, model_lag) if model_lag else machine.begin(*task.id)
        task.version, task.weights = machine.version - model_lag, self.models[-1 - model_lag]
        return effects if self.kind.offline else [*effects, Send(task.user, self.model_of(task))]

    def model_of(self, task: UserRound) -> ModelDownload:
        return ModelDownload(task.weights, task.id, task.version)

    @property
    def model_bytes(self) -> int:
        return ModelDownload(self.weights).size_bytes

    def model_follows(self, message: Message) -> bool:
        """Return True for the message behind which the model goes to a user."""
        return type(message) is self.model_with

    def step(self, effects: Effects) -> bool:
        """Apply the aggregate among a step's effects, x^(t+1) from x^(t) and g; True if there is one."""
        result = next((effect for effect in effects if isinstance(effect, Result)), None)
        if result is None:
            return False
        state = result.mean
        if self.moments is not None:
            state = self.moments = self.ops.moments(self.rule.remember, self.moments, result.mean)
        self.weights = self.ops.apply(self.rule.apply, self.weights, state, self.lr)
        self.models.append(self.weights)
        self.version += 1
        return True


class ServerSide(ABC):
    """The server of one protocol's run; `Rounds` and `Buffer` say when users take part.

    Args:
        runtime: Executes its steps.
        network: The links to users.
        users: The other side.
        rule: Of the global model's steps.
    """

    checkpoints: Checkpoints | None = None
    on_round: Callable[[ClosedRound], None] | None = None
    """Called with each round as it has closed."""
    receiver: Receiver | None = None
    """Takes its messages at the users; None where a socket carries them."""

    def __init__(self, runtime: Runtime, network: Network, users: Users, rule: ServerRule) -> None:
        self.runtime = runtime
        self.network = network
        self.users = users
        self.env, self.trace, self.config = runtime.env, runtime.trace, runtime.config
        config = self.config
        slowdown = config.server_slowdown / config.server_cores
        self.device = Device(runtime, SERVER, slowdown, 1, self)
        self.disconnections = Disconnections(self)
        self.outcomes: deque[ClosedRound] = deque()
        self.round = 0
        self.start = 0
        self.done = False
        seed = seed_array(runtime.streams.bytes("initial weights"))
        self.host = ServerHost(runtime.setup.kind, runtime.ops, runtime.trainer, rule, config, seed)
        self.life = Life(self.env, self.main())

    # -- to be implemented by rounds and buffers
    @abstractmethod
    def main(self) -> Waits:
        """Return the generator of the server's life."""

    @abstractmethod
    def task_of(self, user: int, index: int, subject: Subject) -> UserRound | None:
        """Return the task that a message to a user belongs to."""

    @abstractmethod
    def members(self, result: Result) -> list[tuple[UserRound, float]]:
        """Return the tasks behind a result, with their factors."""

    @abstractmethod
    def using_model(self) -> Iterable[UserRound]:
        """Return the tasks whose global model may still be needed."""

    @property
    @abstractmethod
    def awaited(self) -> str:
        """The event for which a run that got no further waited."""

    def machine_of(self, task: UserRound | None) -> AnyServer:
        """Return the server machine that takes a message."""
        assert task is not None
        return task.server

    def offline(self, user: int, why: str, row: int, was_lost: bool) -> None:
        """Act on a user's device that went offline."""

    def online(self, user: int, row: int) -> None:
        """Act on a user's device that came back online."""
        self.disconnections.notify(user)  # a new connection shows that the old one broke
        self.count_return()

    def count_return(self, stays: bool = False) -> None:
        """Count a user that came back online, or stays as it is; too many stop a run that gets nowhere."""
        progress = self.runtime.progress
        progress.stays += stays
        progress.returns += not stays
        if progress.all_return or progress.all_failed:
            self.stall(f"{progress.describe()}, and {self.awaited}")

    def lost(self, task: UserRound, phase: str, row: int) -> None:
        """Act on the loss of a user: its connection broke."""
        self.disconnections.report(task.user, task.id, task.server, phase, row)

    def _on_round_closed(self, step: int) -> None:
        """Act on the end of a round: with an aggregate, which is applied already, or without."""

    def _on_given_up(self, users: Iterable[int], update: UpdateId | None) -> None:
        """Act on users, and an update, that the server gave up."""

    def _on_processed(self, task: UserRound, step: int) -> None:
        """Act on a user's upload that the server has processed."""

    def _on_heard(self, user: int, step: int) -> None:
        """Act on a user's message of no task that the server has processed."""

    def _on_discarded(self, update: UpdateId) -> None:
        """Act on an update that the server discarded from its buffer."""

    def _on_step(self, step: int) -> None:
        """Act on the end of a step of the server."""

    # -- steps
    def call(self, machine: AnyServer, call: str, argument: Any, cause: int, phase: str, **more: Any) -> None:
        """Queue a call of the server's machine."""
        arguments = () if argument is None else (argument,)
        index = more.pop("round", self.round)
        self.device.protocol.put(Job(machine, call, arguments, phase, cause, self.env.now, index, **more))

    def complete(self, effects: Effects) -> None:
        """Do what belongs to a step beside the machine's call: the global update, the model's encoding."""
        if self.config.codec and any(
            isinstance(e, Send) and self.host.model_follows(e.message) for e in effects
        ):
            self.runtime.ops.charge_codec(self.host.model_bytes)
        if self.host.step(effects) and self.checkpoints is not None:
            self.checkpoints.stepped()

    def finish(self, device: Device, job: Job, step: int) -> None:
        """Carry out the effects of a finished step."""
        for effect in job.outcome:
            if isinstance(effect, Send):
                self._send(job.round, effect.to, effect.message, step)
            else:
                self._carry_out(effect, job, step)
        if job.then is not None:
            job.then(step)
        self._on_step(step)

    def _carry_out(self, effect: Effect, job: Job, step: int) -> None:
        """Carry out an effect that is not a message."""
        now, add, index = self.env.now, self.trace.add, job.round
        match effect:
            case Timer(name, phase, subject):
                fires = now + self.config.deadlines_ns[name]
                row = add(rows.TimerSet(index, name, phase, name_of(subject), step, now, fires))
                Life(self.env, self._deadline(ref(job.machine), effect, fires, row, index), at_once=True)
            case Result():
                members = tuple((m.user, name_of(m.update), m.staleness) for m in effect.members)
                add(rows.Aggregated(self.round, members, step, now))
                self._end_round(step, self._closed(effect))
            case Abort(reason):
                self._abort_round(reason, step)
            case GiveUp(users, phase, update):
                add(rows.GaveUp(index, phase, name_of(update), users, step, now))
                self._on_given_up(users, update)
            case Surplus(users, phase):
                add(rows.Surplus(index, phase, users, step, now))
                for user in users:
                    self._send(index, user, Stop(index), step)
            case Discard(update):
                name = name_of(update)
                add(rows.Ignored(index, SERVER, update.user, rows.UPDATE, name, effect.why, step, now))
                self._on_discarded(update)
            case Ignore() | Refuse():
                self.runtime.note(effect, SERVER, index, step)
            case Verdict(survivors, reliable, private):
                add(rows.Judged(index, survivors, reliable, private, step, now))
            case Ready() | Send():
                pass  # a server has nothing to train; messages have gone out before
            case _:
                assert_never(effect)

    def _deadline(self, machine_of: ref[Any], timer: Timer, fires_ns: int, row: int, index: int) -> Waits:
        """Wait for a deadline; it is a step of the server, if its machine still waits for it then.

        The machine is held weakly: deadlines of a round that is over do not keep all that its server knew.
        """
        yield fires_ns - self.env.now
        machine = machine_of()
        if machine is not None and not self.done and machine.awaits(timer):
            more = {"what": timer.name, "subject": timer.subject, "round": index}
            self.call(machine, "expire", timer, row, timer.phase, **more)

    # -- messages
    def _send(self, index: int, to: int, message: Message, step: int) -> None:
        """Send a message to a user, and the model after the message that the protocol says."""
        task = self.task_of(to, index, message.subject)
        t = Transmission(self.runtime, message, SERVER, to, index, step, task, self.receiver)
        if task is not None:
            if task.lost:
                t.on_aborted(0)
                return
            task.inbound += 1
        self.network.link(to, up=False).send(t)
        if task is not None and self.host.model_follows(message):
            self._send(index, to, self.host.model_of(task), step)

    def arrived(self, transmission: Transmission) -> None:
        """Take a message as a step; the half of one that broke off counts for nothing."""
        t, m, task = transmission, transmission.message, transmission.task
        if t.half:
            return
        now = self.env.now
        row = t.row(t.size_bytes, now)
        if task is not None and (loss := task.not_counted(m)):
            self.users.lose(task, *loss, row)
            return
        arguments = (t.sender, m)  # by position, as half of all rows are made of these
        job = Job(
            self.machine_of(task),
            "receive",
            arguments,
            m.phase,
            row,
            now,
            t.round,
            m.kind,
            m.subject,
            None,
            True,
        )
        if task is None:
            job.then = partial(self._on_heard, t.sender)
        elif m.point == "upload":
            task.deliver(now)
            job.then = partial(self._on_processed, task)
        self.device.protocol.put(job)

    # -- the end of a round
    def _closed(self, result: Result) -> ClosedRound:
        """Return the round in progress with this aggregate, audited if the updates are here."""
        aggregate = Aggregate(result, self.members(result), self.host.weights)
        closed = ClosedRound(
            self.round,
            self.env.now,
            None,
            None,
            self.runtime.setup.losses.rate_in(self.round),
            unaudited=aggregate,
        )
        return self.audited(closed) if self.config.audits else closed

    def audited(self, closed: ClosedRound) -> ClosedRound:
        """Return a closed round with its audit and its evaluation asked for, as the updates are here now."""
        assert closed.unaudited is not None
        aggregate, kind, ops = closed.unaudited, self.runtime.setup.kind, self.runtime.ops
        result, involved = aggregate.result, aggregate.involved
        deltas = [task.update for task, _ in involved if task.update is not None]
        samples = [task.samples if kind.weighted else 1 for task, _ in involved]
        weights = [n * factor for n, (_, factor) in zip(samples, involved, strict=True)]
        if kind.offline:
            audited = _audit_in_field(self.runtime, aggregate, samples)
        else:
            audited = ops.run_uncharged(audit.real, (1, 3, F64), result.total, deltas, weights)
        for task, _ in involved:
            task.update = None  # what holds on to it from here on is what was asked for above
        users = tuple(task.user for task, _ in involved)
        record = (
            RecordedRound(result.mean, users, tuple(weights), tuple(deltas)) if self.config.record else None
        )
        clipped = tuple(task.clipped for task, _ in involved if task.clipped is not None)
        closed = self.evaluated(closed)
        return replace(closed, audit=audited, clipped=clipped, record=record, unaudited=None)

    def evaluated(self, closed: ClosedRound) -> ClosedRound:
        """Return a closed round with accuracy and loss of its global model asked for, if they are due."""
        assert closed.unaudited is not None
        index, config, trainer = closed.round, self.config, self.runtime.trainer
        due = (index + 1) % config.evaluate_every == 0 or index + 1 == config.rounds
        if not (due and trainer.evaluates):
            return closed
        weights = closed.unaudited.weights
        asked = self.runtime.ops.run_uncharged(trainer.evaluate, (1, 2, F64), weights)
        return replace(closed, evaluation=asked)

    def _abort_round(self, reason: str, cause: int, last: bool = False) -> None:
        """Close the round without an aggregate; the global model stays. With `last`, no round follows."""
        row = self.trace.add(rows.Aborted(self.round, reason, cause, self.env.now))
        rate = self.runtime.setup.losses.rate_in(self.round)
        closed = ClosedRound(self.round, self.env.now, None, None, rate)
        self._end_round(cause if cause >= 0 else row, closed, last)

    def stall(self, why: str) -> None:
        """Stop a run that comes to nothing more: the round in progress is its last."""
        self._abort_round(f"stopped at {self.env.now / NS:.3f} s: {why}", -1, last=True)

    def _end_round(self, step: int, closed: ClosedRound, last: bool = False) -> None:
        runtime = self.runtime
        if runtime.meter is not None:
            runtime.meter.report(self.round, runtime.setup.kind.asynchronous)
        self.trace.add(rows.End(self.round, self.start, self.env.now, step))
        runtime.progress.reset()
        self.round += 1
        if self.checkpoints is not None:
            closed = replace(closed, checkpoint=self.checkpoints.take_checkpoint())
        self.outcomes.append(closed)
        self.env.enough = True  # the driver looks at it now
        self.done = last or self.round >= self.config.rounds
        self._on_round_closed(step)
        if self.on_round is not None:
            self.on_round(closed)


def _audit_in_field(runtime: Runtime, aggregate: Aggregate, samples: list[int]) -> Handle:
    """Compare a sum over the field with one of whole numbers; seeds of rounding are not of the machines.

    Updates are added in the order of arrival, as the server adds them, so that none is kept for long.
    """
    ops, p = runtime.ops, runtime.setup.params
    plain: Handle | None = None
    for (task, factor), n in sorted(
        zip(aggregate.involved, samples, strict=True), key=lambda pair: pair[0][0].arrived_ns
    ):
        assert task.update is not None
        seed = seed_array(task.entropy.peek(f"quantise{name_of(task.id)}"))
        arguments = (plain, task.update, n * int(factor), seed, p.clip, p.levels)
        plain = ops.run_uncharged(audit.add_levels, (1, task.update.columns + 2, F64), *arguments)
    return ops.run_uncharged(audit.compare, (1, 3, F64), aggregate.result.total, plain, p.q)
