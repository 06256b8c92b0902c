"""Local training on a device's second lane.

Where users have a deadline (`learning.partial`), a training's minibatch steps are as many as end by it. With
a clock that counts work they are known before it begins, and a recording has them in `what` of the training's
row; a measured training is cut while it is done, at a minibatch's end.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from simfl.dataplane.handles import Handle
from simfl.dataplane.work import Segment
from simfl.engine.devices import Device, Job, Runtime
from simfl.learning.minibatches import Cutoff
from simfl.protocols.machine import Effects, name_of
from simfl.trace.codes import StepsDone
from simfl.trace.rows import TRAIN
from simfl.virtual_time import nanoseconds

if TYPE_CHECKING:
    from simfl.engine.user_side import UserRound


def seed_of(runtime: Runtime, task: UserRound) -> Handle:
    """Return the seed of a training's minibatches."""
    name = ("minibatches", task.user, name_of(task.id) or task.round)
    return runtime.ops.secret(runtime.streams.bytes(*name))


def training_job(runtime: Runtime, task: UserRound, device: Device, cause: int) -> Job:
    """Return a user's training, whose step wakes its life."""
    seed, config, trainer = seed_of(runtime, task), runtime.config, runtime.trainer
    run = partial(task.train, runtime.training_ops, trainer, seed)
    args = (task.client, TRAIN, (), task.phase, cause, runtime.env.now, task.round)
    job = Job(*args, subject=task.id, task=task, run=run, then=task.life.wake)
    minibatches = trainer.steps(task.user)
    if config.partial is not None and minibatches:
        within_ns = nanoseconds(config.partial.within_s)
        job.run = partial(_train_within, runtime, task, device, job, seed, minibatches, within_ns)
    job.cut = task.planned("training") == "mid_send"
    if config.training_noise is not None:  # a draw of the user's own stream
        job.factor = config.training_noise(task.user, name_of(task.id) or task.round)
    return job


def _train_within(
    runtime: Runtime,
    task: UserRound,
    device: Device,
    job: Job,
    seed: Handle,
    minibatches: int,
    within_ns: int,
) -> Effects:
    """Train for as many minibatches as there is time for; if these are not all, the step says so."""
    trainer, ops = runtime.trainer, runtime.training_ops
    slowdown = device.slowdown * job.factor
    lane_key = (job.round, task.user, "training")

    def counted(steps: int) -> Segment:
        return ops.segment_with(trainer.work(task.user, steps))

    steps = runtime.clock.steps(lane_key, minibatches, counted, slowdown, within_ns)
    cutoff = Cutoff(within_ns / slowdown)
    effects = task.train(ops, trainer, seed, cutoff if steps is None else steps)
    task.steps = cutoff.steps if steps is None else steps
    job.what = "" if task.steps == minibatches else str(StepsDone(task.steps, minibatches))
    return effects
