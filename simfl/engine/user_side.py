"""The users' side of a session: what each user does in a round, or in a cycle of an asynchronous run.

A user's part is a life that reads from top to bottom (`UserSide._take_part`). Whatever ends it early, a
planned loss, going offline, an empty battery or the server's word to stop, is one simpy.Interrupt of that
life, and is booked in one place (`UserSide._end`).

In a simulation one `UserSide` has all users, and its server is the server's side. In a live run it has the
users of one connection, and its server is that connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import simpy

from simfl.dataplane.handles import F64, Handle
from simfl.dataplane.ops import Ops, Trainer
from simfl.engine.devices import Device, Job, Runtime
from simfl.engine.life import Life, Waits
from simfl.engine.links import Transmission
from simfl.engine.presence import LOST, WHY, PresenceTracker
from simfl.engine.setup import ModelDownload, ProtocolSetup, Stop
from simfl.engine.sides import Network, Receiver, Server
from simfl.engine.training import training_job
from simfl.engine.user_state import AFTER, MISSED_IN, ON_THE_WAY, Delay, Loss, NextStep, State
from simfl.learning.clipping import Clip
from simfl.protocols.contracts import AnyServer, ClientMachine, client_machine
from simfl.protocols.machine import SERVER, Effects, Message, Params, Ready, Send, Update
from simfl.trace import rows
from simfl.trace.codes import UpdateId, name_of
from simfl.world.dropout import PlannedLoss, WhenPlanned


@dataclass(slots=True, eq=False)
class UserRound:
    """A user's part: its machine, the model that it works on, and its state, without a clock.

    Planned losses are looked up here and nowhere else, and so is the phase to which a loss is booked: the one
    in which the user is missed. A user that is lost once its upload has left is missed in the recovery.
    """

    user: int
    round: int
    id: UpdateId | None
    """The update of a cycle; None in a round."""
    server: AnyServer
    """The machine to which its messages go."""
    weights: Handle
    """The model that it trains, 1 x d float32."""
    ready: bool
    """The offline phase is done, or there is none."""
    first_phase: str
    plan: PlannedLoss | None
    """The planned loss, if any."""
    client: Any = None
    """The user's machine; with the server of a live run, None."""
    entropy: Any = None
    version: int = 0
    """t_i, the version of `weights`."""
    state: State = State.PREPARING
    lost: bool = False
    """Nothing more comes of it: the user is lost, or was told to stop."""
    over: bool = False
    """The server wants no more of it: its round has closed, or its update was given up."""
    downloaded: bool = False
    """The model is there."""
    inbound: int = 0
    """Messages on their way to the user."""
    arrived_ns: int = 0
    """Time at which the server had the upload, ns."""
    steps: int = 0
    """Minibatches that were trained, where the scenario bounds them."""
    samples: int = 0
    """The update's weight."""
    update: Handle | None = None
    clipped: Handle | None = None
    life: Any = None
    """The user's, from its selection until the server has dealt with the upload, or the user is lost."""

    @classmethod
    def of(
        cls, setup: ProtocolSetup, user: int, index: int, server: AnyServer, weights: Handle, *plan: Any
    ) -> UserRound:
        """Return a part at its beginning; plan: the planned loss, and over a buffer the update."""
        loss, update = (*plan, None)[:2]
        return cls(user, index, update, server, weights, not setup.kind.offline, setup.first_phase, loss)

    @property
    def phase(self) -> str:
        """The phase to which a loss of the user would be booked now."""
        return MISSED_IN.get(self.state, self.first_phase)

    @property
    def delivered(self) -> bool:
        """True once the server has the upload."""
        return self.state is State.DELIVERED

    @property
    def under_way(self) -> bool:
        """True while something is on its way from or to the user."""
        return self.inbound > 0 or self.state in ON_THE_WAY

    def become(self, state: State) -> None:
        """Go on to a state; of an upload in several messages, the first one counts."""
        self.state = max(self.state, state)

    def planned(self, point: str | None) -> WhenPlanned | None:
        """Return when the scenario loses or delays the user at this point, if it does."""
        return self.plan.when if self.plan is not None and self.plan.point == point else None

    def _delay(self) -> Delay:
        assert self.plan is not None
        return Delay(self.plan.delay_ns)

    # -- training
    def may_train(self, overlap: bool) -> bool:
        """Return True when training can begin: the model is there and, without overlap, the masks are."""
        return self.state is State.PREPARING and self.downloaded and (self.ready or overlap)

    def begin_training(self) -> Loss | None:
        self.become(State.TRAINING)
        return Loss("training", "before training") if self.planned("training") == "before_send" else None

    def train(self, ops: Ops, trainer: Trainer, seed: Handle, steps: Any = None) -> Effects:
        self.update = ops.train(trainer, self.weights, self.user, seed, self.round, steps)
        return []

    def end_training(self) -> NextStep:
        when = self.planned("training")
        if when == "delay":
            self.become(State.DELAYED)
            return self._delay()
        if when == "mid_send":
            return Loss("training", "amid training")
        return Loss(AFTER["training"], "after training") if when == "after_send" else None

    def prepare_update(
        self, ops: Ops, clip: Clip | None, samples: int, factor: float | None = None
    ) -> Update:
        """Return the update as the machine gets it: times a factor, and held within the scenario's bound.

        It is clipped here and not in the training, where content would be asked for before others of the
        cohort are there.
        """
        assert self.update is not None
        self.samples = samples
        if factor is not None:
            self.update = ops.scale(self.update, factor)
        if clip is not None:
            self.clipped = ops.run_uncharged(clip.changes, (1, 1, F64), self.update)
            self.update = ops.clip(clip.apply, self.update)
        return Update(self.update, samples, self.id, self.version)

    def submit(self, *how: Any) -> Effects:
        """Hand the update to the machine, as `prepare_update` returns it."""
        effects: Effects = self.client.submit(self.prepare_update(*how))
        return effects

    # -- sending
    def send(self, message: Message) -> NextStep:
        if message.point == "upload":
            self.become(State.UPLOADING)
        when = self.planned(message.point)
        if when == "before_send":
            return Loss(message.phase, f"before {message.kind} was sent")
        return self._delay() if when == "delay" else None  # of all else it is lost later

    def breaks_off(self, message: Message) -> bool:
        """Return True for a message of which only half is sent, as the user is lost meanwhile."""
        return self.planned(message.point) == "mid_send"

    def left(self, message: Message) -> Loss | None:
        """The last bit of a message, or of its half, has left."""
        if self.breaks_off(message):
            return Loss(message.phase, f"amid sending {message.kind}")
        if message.point == "upload":
            self.become(State.SENT)
        if self.planned(message.point) == "after_send":
            return Loss(AFTER.get(message.phase, message.phase), f"after sending {message.kind}")
        return None

    def not_counted(self, message: Message) -> Loss | None:
        """A message is at the server whole. Return the loss of a user whose upload is not counted.

        LightSecAgg's testbed loses users so (section 7): they upload, and are gone when the server recovers.
        """
        counted = self.planned(message.point) != "not_counted"
        return None if counted else Loss(message.phase, f"{message.kind} was not counted")

    def deliver(self, at_ns: int) -> None:
        self.become(State.DELIVERED)
        self.arrived_ns = at_ns


def how_submitted(runtime: Runtime, task: UserRound) -> tuple[Any, ...]:
    """Return the last arguments of `UserRound.prepare_update`: weight and factor are of the work done."""
    config, rule = runtime.config, runtime.config.partial
    samples, factor = config.samples(task.user), None
    if rule is not None:
        samples = rule.samples(samples, task.steps, runtime.trainer.steps(task.user))
        factor = rule.factor(task.steps)
    return runtime.ops, config.clip, samples, factor


def _machine(runtime: Runtime, user: int, params: Params, index: int) -> tuple[ClientMachine, Any]:
    """Return a user's machine, and its entropy."""
    setup = runtime.setup
    entropy = setup.entropy(user, index)
    return client_machine(setup.client(user, params, runtime.ops, entropy), setup.kind), entropy


class UserSide:
    """Users, each with its device, its presence and its parts.

    Args:
        runtime: Executes their steps.
        network: The links of these users.
        done_at: The state in which a user of a buffer, or of a closed round, has done all that it had to.
        drops_idle: Users without a part come and go unseen.
    """

    server: Server
    receiver: Receiver | None = None
    """Takes their messages at the server; None where a socket carries them."""

    def __init__(
        self, runtime: Runtime, network: Network, done_at: State = State.DELIVERED, drops_idle: bool = False
    ) -> None:
        self.runtime = runtime
        self.network = network
        self.done_at = done_at
        self.drops_idle = drops_idle
        self.env, self.trace, self.config = runtime.env, runtime.trace, runtime.config
        calls = self._went_offline, lambda user, row: self.server.online(user, row), self._is_idle
        self.presence = PresenceTracker(
            self.env,
            self.trace,
            network,
            self.config.days,
            *calls,
            lambda: self.server.count_return(stays=True),
        )
        self.devices: dict[int, Device] = {}
        self.tasks: dict[int, list[UserRound]] = {}
        """Parts of each user that it may still be lost in, the oldest first."""
        self._clients: dict[int, tuple[ClientMachine, Any]] = {}
        self._params: Params | None = None  # of the latest round

    def device(self, user: int) -> Device:
        """Return a user's device, made when it is first used."""
        device = self.devices.get(user)
        if device is None:
            slowdown, cores = float(self.config.slowdown[user]), int(self.config.cores[user])
            device = self.devices[user] = Device(self.runtime, user, slowdown, cores, self)
        return device

    def client(self, user: int) -> tuple[ClientMachine, Any]:
        """Return a user's machine for the whole of an asynchronous run, and its entropy."""
        if user not in self._clients:
            self._clients[user] = _machine(self.runtime, user, self.runtime.setup.params, 0)
        return self._clients[user]

    # -- what the server asks
    def follow_all(self) -> None:
        """Let all users come and go."""
        if self.config.days is not None and not self.drops_idle:
            for user in range(self.config.users):
                self.presence.follow(user)

    def online(self, user: int) -> bool:
        """Return True for a user that can be selected."""
        return self.presence.online(user)

    def begin(self, task: UserRound) -> None:
        """Begin a user's part, in a round or in the cycle of an update."""
        user, index = task.user, task.round
        if task.id is not None:
            for given_up in tuple(self.tasks.get(user, ())):
                self._remove(given_up)  # going offline is no loss of it any more
            task.client, task.entropy = self.client(user)
        else:
            if self._params is None or self._params.round != index:
                self._params = self.runtime.setup.in_round(index)
            task.client, task.entropy = _machine(self.runtime, user, self._params, index)
        task.life = Life(self.env, self._take_part(task), at_once=True)
        self.tasks.setdefault(user, []).append(task)
        self.presence.follow(user)
        if self.runtime.meter is not None:
            self.runtime.meter.join(user)

    def over(self, user: int, task: UserRound | None) -> None:
        """Note that the server wants no more of a user's part; work on it goes on."""
        if task is not None:
            task.over = True
        if self.runtime.meter is not None:
            self.runtime.meter.leave(user)

    def forget(self, task: UserRound) -> None:
        """End a task that has nothing under way."""
        if self._remove(task) and self.runtime.meter is not None:
            self.runtime.meter.leave(task.user)
        task.life.stop()

    def in_flight(self, task: UserRound) -> bool:
        """Return True while something is on its way from or to a user, or it works."""
        device = self.device(task.user)  # made in this order, which is that of their last rows
        if task.delivered or task.lost:
            return False
        return task.under_way or device.has(task)

    def lose(self, task: UserRound, phase: str, why: str, cause: int) -> None:
        """Lose a user: its device stops working on this part, and unsent messages are gone."""
        if not task.lost:
            self._interrupt(task, (phase, why, cause))

    def release(self, task: UserRound) -> None:
        """Stop a user whose update is no longer needed; an upload that has left still arrives."""
        if not (task.lost or task.delivered):  # of the latter, what is on the link is of a later round
            self._interrupt(task, None)

    def _interrupt(self, task: UserRound, loss: tuple[str, str, int] | None) -> None:
        if task.life.is_alive:
            task.life.interrupt(loss, at_once=True)
        else:  # it was forgotten, and a message of it is still on its way
            self._end(task, loss)

    # -- a user's part
    def _take_part(self, task: UserRound) -> Waits:
        """Train once the model is there (and, without overlap, the masks are), and submit the update."""
        try:
            step = yield None
            if (loss := task.begin_training()) is not None:
                raise simpy.Interrupt((*loss, step))
            self._train(task, step)
            step = yield None  # a lost user's training breaks off, and wakes nothing
            answer = task.end_training()
            if isinstance(answer, Loss):
                raise simpy.Interrupt((*answer, step))
            if answer is not None:
                yield answer.ns
            self._submit(task, step)
            yield None  # until the server has dealt with it
        except simpy.Interrupt as interrupt:
            self._end(task, interrupt.cause)

    def _train(self, task: UserRound, step: int) -> None:
        device = self.device(task.user)
        device.training.put(training_job(self.runtime, task, device, step))

    def _submit(self, task: UserRound, step: int) -> None:
        task.become(State.SUBMITTED)
        run = partial(task.submit, *how_submitted(self.runtime, task))
        args = (task.client, "submit", (), task.phase, step, self.env.now, task.round)
        self.device(task.user).protocol.put(Job(*args, subject=task.id, task=task, run=run))

    def _go_on(self, task: UserRound, step: int, has_model: bool = False) -> None:
        """Let a user train if all is there that its training waits for; the last of it came by this step."""
        task.downloaded |= has_model
        if task.may_train(self.config.overlap):
            task.life.wake(step)

    def _end(self, task: UserRound, loss: tuple[str, str, int] | None) -> None:
        """End a part early: by a loss, that is a phase, a reason and its cause's row, or as it is surplus."""
        user, task.lost = task.user, True
        broken = self.device(user).training.interrupt(task)
        if loss is not None:
            phase, why, cause = loss
            if broken >= 0 and isinstance(self.trace[cause], rows.Presence):
                cause = broken  # what held the round up so far was the training that now ends
            lost = rows.Lost(task.round, user, name_of(task.id), phase, why, cause, self.env.now)
            row = self.trace.add(lost)
        self.network.link(user, up=True).cut()
        self._remove(task)
        if self.runtime.meter is not None:
            self.runtime.meter.leave(user)
        if loss is not None:
            if self.config.return_ns is not None:
                self.stay_away(user, self.config.return_ns)
            self.server.lost(task, phase, row)

    def _remove(self, task: UserRound) -> bool:
        """Remove a part from those of its user; False if it is none of them."""
        tasks = self.tasks.get(task.user, [])
        if task not in tasks:
            return False
        tasks.remove(task)
        if not tasks:
            del self.tasks[task.user]
        return True

    # -- messages
    def arrived(self, transmission: Transmission) -> None:
        """Take a message at a user's device: as a step of its protocol lane; but the word to stop at once."""
        t, task = transmission, transmission.task
        cause = t.row(t.size_bytes, self.env.now)
        if isinstance(t.message, Stop):
            assert task is not None
            self.release(task)
        else:
            self._receive(t, task, cause)
        if task is not None:
            task.inbound -= 1

    def _receive(self, t: Transmission, task: UserRound | None, cause: int) -> None:
        m = t.message
        client = self.client(t.to)[0] if task is None else task.client
        arguments = (t.sender, m)  # by position, as half of all rows are made of these
        now = self.env.now
        job = Job(client, "receive", arguments, m.phase, cause, now, t.round, m.kind, m.subject, task, True)
        if isinstance(m, ModelDownload):
            assert task is not None
            task.version = m.version
            job.run, job.then = list, partial(self._go_on, task, has_model=True)
        self.device(t.to).protocol.put(job)

    def complete(self, effects: Effects) -> None:
        """Do nothing beside the machine's call in a step."""

    def finish(self, device: Device, job: Job, step: int) -> None:
        """Carry out the effects of a user's step."""
        user, task = device.party, job.task
        for effect in job.outcome:
            if task is not None and task.lost:
                break
            if isinstance(effect, Send):
                self._send(user, job, effect.message, step)
            elif not isinstance(effect, Ready):
                self.runtime.note(effect, user, job.round, step)
            elif task is not None:
                task.ready = True
                self._go_on(task, step)
        if job.then is not None:
            job.then(step)

    def _send(self, user: int, job: Job, message: Message, step: int) -> None:
        """Send a message to the server, unless the user is lost at this point."""
        answer = None if job.task is None else job.task.send(message)
        if answer is None:
            self._transfer(user, job, message, step)
        elif isinstance(answer, Delay):
            Life(self.env, self._send_later(answer.ns, user, job, message, step), at_once=True)
        else:
            assert job.task is not None
            self.lose(job.task, *answer, step)

    def _send_later(self, ns: int, user: int, job: Job, message: Message, step: int) -> Waits:
        yield ns
        if job.task is not None and not job.task.lost:
            self._transfer(user, job, message, step)

    def _transfer(self, user: int, job: Job, message: Message, step: int) -> None:
        task = job.task
        args = (self.runtime, message, user, SERVER, job.round, step, task)
        half = task is not None and task.breaks_off(message)
        transmission = Transmission(*args, self.receiver, None if task is None else self, half)
        self.network.link(user, up=True).send(transmission)

    def left(self, t: Transmission) -> None:
        """The last bit of a message, or of its half, has left."""
        assert t.task is not None
        if (loss := t.task.left(t.message)) is not None:
            self.lose(t.task, *loss, t.on_aborted(t.size_bytes) if t.half else t.step)

    # -- coming and going
    def stay_away(self, user: int, ns: int) -> None:
        """Take a user that was lost offline for a while."""
        if self.presence.online(user):
            self.presence.add_reason(user, LOST)
            Life(self.env, self._return(user, ns), at_once=True)

    def _return(self, user: int, after_ns: int) -> Waits:
        """Bring a lost user back online."""
        yield after_ns
        self.presence.remove_reason(user, LOST)

    def _went_offline(self, user: int, why: str, row: int) -> None:
        buffered, was_lost = self.runtime.setup.kind.asynchronous, False
        for task in tuple(self.tasks.get(user, ())):
            may_work = task.state < self.done_at
            if may_work if buffered else not task.over or (may_work and self.in_flight(task)):
                self.lose(task, task.phase, WHY[why], row)
                was_lost = True
        if not buffered:  # no mailbox: a round that it is lost from asks no more of it
            self.network.link(user, up=False).cut()
        self.server.offline(user, why, row, was_lost)

    def _is_idle(self, user: int) -> bool:
        """Return True if nothing depends on a user's coming and going."""
        return self.drops_idle and not (user in self.tasks or self.network.busy(user))
