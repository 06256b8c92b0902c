"""What a finished round is looked at for: its audit, its evaluation, what it is to keep; all as handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simfl.crypto import audit
from simfl.engine.world import Outcome, Record
from simfl.protocols.base import Result
from simfl.protocols.ops import F64, Handle, seed_array

if TYPE_CHECKING:
    from simfl.engine.session import Session


def outcome(session: Session, result: Result) -> Outcome:
    """The outcome of the session's round in progress."""
    kind, p, index, ops = session.machines.kind, session.machines.params, session.round, session.ops
    involved = session.members(result)
    deltas = [task.update for task, _ in involved if task.update is not None]
    samples = [session.world.samples(task.user) if kind.weighted else 1 for task, _ in involved]
    factors = [factor for _, factor in involved]
    weights = [n * factor for n, factor in zip(samples, factors, strict=True)]
    check: tuple[Any, ...]
    if kind.offline:  # masked in the field: the seeds of rounding are derived apart from the machines
        seeds = [seed_array(task.client.entropy.peek(f"quantise{task.about}")) for task, _ in involved]
        whole = [int(factor) for factor in factors]
        check = (audit.in_field, result.total, deltas, samples, whole, seeds, p.clip, p.levels, p.q)
    else:
        check = (audit.real, result.total, deltas, weights)
    kernel, *arguments = check
    audited: Handle = ops.free(kernel, (1, 3, F64), *arguments)
    due = (index + 1) % session.world.evaluate_every == 0 or index + 1 == session.world.rounds
    evaluation = ops.free(session.trainer.evaluate, (1, 2, F64), session.weights) if due else None
    users = tuple(task.user for task, _ in involved)
    return Outcome(
        index,
        session.env.now,
        audited,
        evaluation,
        session.machines.losses.rate(index),
        clipped=tuple(task.clipped for task, _ in involved if task.clipped is not None),
        record=Record(result.mean, users, tuple(weights), tuple(deltas)) if session.world.record else None,
    )
