"""Local training on a device's second lane, and the update that is handed to the machine after it.

Where users have a deadline (`learning.partial`), a training's minibatch steps are as many as end by it. With
a clock that counts work they are known before it begins, and a recording has them in `what` of the training's
row; a measured training is cut while it is done, at a minibatch's end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from simfl.dataplane.handles import Handle
from simfl.dataplane.work import Segment
from simfl.engine.devices import Job
from simfl.engine.life import Life, Waits
from simfl.engine.user_round import Delay, Loss, State, UserRound
from simfl.learning.minibatches import Cutoff
from simfl.protocols.machine import Effects, name_of
from simfl.results.trace import TRAIN
from simfl.results.trace_codes import StepsDone
from simfl.virtual_time import nanoseconds

if TYPE_CHECKING:
    from simfl.engine.session import Session


class Training:
    """Takes users through their parts in rounds or cycles, a life each: from the model to the update."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def downloaded(self, task: UserRound, step: int) -> None:
        """The global model has arrived, by this step."""
        task.downloaded = True
        self.go_on(task, step)

    def go_on(self, task: UserRound, step: int) -> None:
        """Wake a user's part: the model, or the end of its offline phase, has come by this step."""
        if task.life is None:
            task.life = Life(self.session.env, self._take_part(task), at_once=True)
        if task.may_train(self.session.world.overlap):
            task.life.wake(step)

    def _take_part(self, task: UserRound) -> Waits:
        """Train once the model is there (and, without overlap, the masks are), and submit the update."""
        session = self.session
        step = yield None
        answer = task.begin_training()
        if answer is None:
            self._train(task, step, task.life)
            step = yield None  # a lost user's training breaks off, and wakes nothing
            answer = task.end_training()
        match answer:
            case Loss(phase, why):
                session.lose(task, phase, why, step)
                return
            case Delay(ns):
                yield ns
                if task.lost:
                    return
            case None:
                pass
            case _:
                assert_never(answer)
        task.become(State.SUBMITTED)
        run = partial(task.submit, *self._how(task))
        session.device(task.user).protocol.put(self._job(task, "submit", step, run))

    def seed(self, task: UserRound) -> Handle:
        """Return the seed of a training's minibatches."""
        name = ("minibatches", task.user, name_of(task.id) or task.round)
        return self.session.ops.secret(self.session.streams.bytes(*name))

    def _train(self, task: UserRound, cause: int, life: Life) -> None:
        """Queue a training; its step wakes the life."""
        session, seed = self.session, self.seed(task)
        job = self._job(task, TRAIN, cause, partial(task.train, session.training_ops, session.trainer, seed))
        whole = session.trainer.steps(task.user)
        if session.world.partial is not None and whole:
            job.run = partial(self._part, task, job, seed, whole, nanoseconds(session.world.partial.within_s))
        job.cut, job.factor = task.planned("training") == "mid_send", session.noise(task)
        job.then = life.wake
        session.device(task.user).training.put(job)

    def _part(self, task: UserRound, job: Job, seed: Handle, whole: int, within_ns: int) -> Effects:
        """Train for as many minibatches as there is time for; if these are not all, the step says so."""
        session, trainer, ops = self.session, self.session.trainer, self.session.training_ops
        slowdown = session.device(task.user).slowdown * job.factor
        place = (job.round, task.user, "training")

        def counted(steps: int) -> Segment:
            return ops.with_more(trainer.work(task.user, steps))

        steps = session.clock.steps(place, whole, counted, slowdown, within_ns)
        cutoff = Cutoff(within_ns / slowdown)
        effects = task.train(ops, trainer, seed, cutoff if steps is None else steps)
        task.steps = cutoff.steps if steps is None else steps
        job.what = "" if task.steps == whole else str(StepsDone(task.steps, whole))
        return effects

    def _how(self, task: UserRound) -> tuple[Any, ...]:
        """Return the weight and the factor of the work that was done, as `UserRound.weigh` takes them."""
        session, rule = self.session, self.session.world.partial
        samples, factor = session.world.samples(task.user), None
        if rule is not None:
            samples = rule.samples(samples, task.steps, session.trainer.steps(task.user))
            factor = rule.factor(task.steps)
        return session.ops, session.world.clip, samples, factor

    def again(self, task: UserRound, what: str) -> None:
        """Train once more for an audit: as many minibatches as `what` of the training's row says."""
        session, done = self.session, StepsDone.read(what)
        task.steps = session.trainer.steps(task.user) if done is None else done.steps
        task.train(session.ops, session.trainer, self.seed(task), None if done is None else done.steps)
        task.weigh(*self._how(task))

    def _job(self, task: UserRound, call: str, cause: int, run: Callable[[], Effects]) -> Job:
        now, phase = self.session.env.now, task.phase
        return Job(task.client, call, (), phase, cause, now, task.round, subject=task.id, task=task, run=run)
