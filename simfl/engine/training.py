"""Local training on a device's second lane.

Where users have a deadline (`learning.partial`), a training has as many minibatches as end by it. A clock
that counts work computes their number before it begins; a recording has it in `what` of the training's row. A
measured training is cut at the end of a minibatch, while it runs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from simfl.dataplane.handles import Handle
from simfl.dataplane.work import Segment
from simfl.engine.devices import Device, Job, Runtime
from simfl.learning.minibatches import Cutoff
from simfl.learning.partial_work import PartialWork
from simfl.protocols.machine import Effects, name_of
from simfl.trace.codes import StepsDone
from simfl.trace.rows import TRAIN
from simfl.virtual_time import nanoseconds

if TYPE_CHECKING:
    from simfl.engine.user_round import UserRound


def seed_of(runtime: Runtime, task: UserRound) -> Handle:
    """Return the seed of a training's minibatches."""
    # By cycle over a buffer, and by round otherwise: never by time, so a user has the same minibatches under
    # each protocol.
    name = ("minibatches", task.user, name_of(task.id) or task.round)
    return runtime.ops.secret(runtime.streams.bytes(*name))


def queue_training(device: Device, task: UserRound, cause: int) -> None:
    """Queue a user's training, made ready by the row `cause`; its step wakes the life of the task."""
    runtime = device.runtime
    args = (task.client, TRAIN, (), task.phase, cause, runtime.env.now, task.round)
    job = Job(*args, subject=task.id, task=task, on_done=task.life.wake)
    seed, ops, trainer = seed_of(runtime, task), runtime.training_ops, runtime.trainer
    # A training without minibatches, of a user without samples, has none that could be cut.
    if runtime.config.partial is None or not trainer.steps(task.user):
        job.run = partial(task.train, ops, trainer, seed)
    else:
        # Set on the job and not passed to it, since it needs the job: its factor of noise, and its `what`.
        job.run = partial(_train_within, runtime, task, device, job, seed, runtime.config.partial)
    job.is_half = task.plan_at("training") == "mid_send"
    if runtime.config.training_noise is not None:
        job.factor = runtime.config.training_noise(task.user, name_of(task.id) or task.round)
    device.training.put(job)


def _train_within(
    runtime: Runtime, task: UserRound, device: Device, job: Job, seed: Handle, rule: PartialWork
) -> Effects:
    """Train for the minibatches that the deadline allows; unless these are all, put them into `what`."""
    trainer, ops = runtime.trainer, runtime.training_ops
    minibatches = trainer.steps(task.user)
    within_ns, slowdown = nanoseconds(rule.within_s), device.slowdown * job.factor

    def counted(steps: int) -> Segment:
        return ops.segment_with(trainer.work(task.user, steps))

    lane_key = (job.round, task.user, "training")
    steps = runtime.clock.steps(lane_key, minibatches, counted, slowdown, within_ns)
    # A measured training is bounded in this machine's time.
    cutoff = Cutoff(within_ns / slowdown)
    effects = task.train(ops, trainer, seed, cutoff if steps is None else steps)
    task.steps = cutoff.steps if steps is None else steps
    # Empty for a full training, so a deadline that binds no user changes no row (test_partial_work.py:
    # test_a_deadline_that_binds_no_user_changes_no_row). `Recording.what` reads it back.
    job.what = "" if task.steps == minibatches else str(StepsDone(task.steps, minibatches))
    return effects
