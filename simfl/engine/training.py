"""Local training on a device's second lane, and the update that is handed to the machine after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from simfl.engine.devices import Job
from simfl.engine.user_round import State, UserRound
from simfl.protocols.machine import Effects, name_of

if TYPE_CHECKING:
    from simfl.engine.session import Session


class Training:
    """Trains users as their `UserRound` says, and submits their updates."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def downloaded(self, task: UserRound, step: int) -> None:
        task.downloaded = True
        self.start_if_possible(task, step)

    def start_if_possible(self, task: UserRound, cause: int) -> None:
        """Start once the model is there and, without overlap, the offline phase is done."""
        if task.may_train(self.session.world.overlap):
            self.session.follow(task, task.begin_training(), cause, partial(self._train, task, cause))

    def _train(self, task: UserRound, cause: int) -> None:
        session = self.session
        name = ("minibatches", task.user, name_of(task.id) or task.round)
        seed = session.ops.secret(session.streams.bytes(*name))
        job = self._job(task, "train", cause, partial(task.train, session.ops, session.trainer, seed))
        job.cut, job.factor = task.planned("training") == "mid_send", session.noise(task)
        job.then = partial(self._trained, task)
        session.device(task.user).training.put(job)

    def _trained(self, task: UserRound, step: int) -> None:
        self.session.follow(task, task.end_training(), step, partial(self._submit, task, step))

    def _submit(self, task: UserRound, step: int) -> None:
        if task.lost:  # while it was delayed
            return
        task.become(State.SUBMITTED)
        ops, world = self.session.ops, self.session.world
        run = partial(task.submit, ops, world.clip, world.samples(task.user))
        self.session.device(task.user).protocol.put(self._job(task, "submit", step, run))

    def _job(self, task: UserRound, call: str, cause: int, run: Callable[[], Effects]) -> Job:
        now, phase = self.session.env.now, task.phase
        return Job(task.client, call, (), phase, cause, now, task.round, subject=task.id, task=task, run=run)
