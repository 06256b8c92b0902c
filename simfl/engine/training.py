"""Local training on a device's second lane: when it may start, and what becomes of the update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simfl.dataplane.handles import F64
from simfl.engine.devices import Job, UserRound
from simfl.engine.transport import FOLLOWING
from simfl.protocols.machine import Effects, Update, name_of

if TYPE_CHECKING:
    from simfl.engine.session import Session


class Training:
    """Starts a task's training and submits its update to the machine."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def downloaded(self, task: UserRound, step: int) -> None:
        """The model is there."""
        task.downloaded = True
        self.start_if_possible(task, step)

    def start_if_possible(self, task: UserRound, cause: int) -> None:
        """Start once the model is there and, without overlap, the offline phase is done."""
        session = self.session
        if task.started or not task.downloaded or not (task.ready or session.world.overlap):
            return
        task.started, task.phase = True, "training"
        plan = task.plan if task.plan and task.plan.point == "training" else None
        when = plan.when if plan else ""
        if when == "before_send":
            session.lose(task, "training", "before training", cause)
            return
        name = ("minibatches", task.user, name_of(task.id) or task.round)
        seed = session.ops.secret(session.streams.bytes(*name))

        def run() -> Effects:
            task.update = session.ops.train(session.trainer, task.weights, task.user, seed, task.round)
            return []

        def then(step: int) -> None:
            if when == "mid_send":
                session.lose(task, "training", "amid training", step)
            elif when == "after_send":
                session.lose(task, FOLLOWING["training"], "after training", step)
            elif plan is not None:
                task.uploading = True  # in flight until then, and given no other work
                later = session.env.now + plan.delay_ns
                session.env.at(later, lambda: self._submit(task, step))
            else:
                self._submit(task, step)

        job = Job(
            machine=None,
            call="train",
            arguments=(),
            phase="training",
            cause=cause,
            ready=session.env.now,
            round=task.round,
            subject=task.id,
            task=task,
            cut=when == "mid_send",
            factor=session.noise(task),
            run=run,
            then=then,
        )
        session.device(task.user).training.put(job)

    def _submit(self, task: UserRound, step: int) -> None:
        if task.lost:
            return
        task.phase = "upload"
        session = self.session

        def run() -> Effects:
            self._clip(task)
            assert task.update is not None
            update = Update(task.update, session.world.samples(task.user), task.id, task.version)
            effects: Effects = task.client.submit(update)
            return effects

        job = Job(
            machine=task.client,
            call="submit",
            arguments=(),
            phase="upload",
            cause=step,
            ready=session.env.now,
            round=task.round,
            subject=task.id,
            task=task,
            run=run,
        )
        session.device(task.user).protocol.put(job)

    def _clip(self, task: UserRound) -> None:
        """Hold an update within the scenario's bound; here and not in the training, where content would be
        asked for before others of the cohort are there."""
        ops, clip = self.session.ops, self.session.world.clip
        if clip is not None:
            assert task.update is not None
            task.clipped = ops.run_uncharged(clip.changes, (1, 1, F64), task.update)
            task.update = ops.clip(clip.apply, task.update)
