"""The end of a round with an aggregate: its audit, its evaluation and what is recorded, all as handles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simfl.dataplane import audit
from simfl.dataplane.handles import F64, Handle
from simfl.dataplane.ops import seed_array
from simfl.engine.setup import ClosedRound, RecordedRound
from simfl.protocols.machine import Result, name_of

if TYPE_CHECKING:
    from simfl.engine.session import Session
    from simfl.engine.user_round import UserRound


def close_round(session: Session, result: Result) -> ClosedRound:
    """Close the round in progress of a session with this aggregate."""
    kind, index, ops, world = session.machines.kind, session.round, session.ops, session.world
    involved = session.members(result)
    deltas = [task.update for task, _ in involved if task.update is not None]
    samples = [world.samples(task.user) if kind.weighted else 1 for task, _ in involved]
    weights = [n * factor for n, (_, factor) in zip(samples, involved, strict=True)]
    if kind.offline:
        audited = _audit_in_field(session, result, involved, samples)
    else:
        audited = ops.run_uncharged(audit.real, (1, 3, F64), result.total, deltas, weights)
    for task, _ in involved:
        task.update = None  # what holds on to it from here on is what was asked for above
    evaluation = None
    if (index + 1) % world.evaluate_every == 0 or index + 1 == world.rounds:
        evaluation = ops.run_uncharged(session.trainer.evaluate, (1, 2, F64), session.host.weights)
    users = tuple(task.user for task, _ in involved)
    record = RecordedRound(result.mean, users, tuple(weights), tuple(deltas)) if world.record else None
    return ClosedRound(
        index,
        session.env.now,
        audited,
        evaluation,
        session.machines.losses.spec.rate_in(index),
        clipped=tuple(task.clipped for task, _ in involved if task.clipped is not None),
        record=record,
    )


def _audit_in_field(
    session: Session, result: Result, involved: list[tuple[UserRound, float]], samples: list[int]
) -> Handle:
    """Compare a sum over the field with a sum of whole numbers; rounding has its seeds apart from machines.

    Updates are added in the order of arrival, as the server adds them, so that none is kept for long.
    """
    ops, p = session.ops, session.machines.params
    plain: Handle | None = None
    for (task, factor), n in sorted(
        zip(involved, samples, strict=True), key=lambda pair: pair[0][0].arrived_ns
    ):
        assert task.update is not None
        seed = seed_array(task.entropy.peek(f"quantise{name_of(task.id)}"))
        arguments = (plain, task.update, n * int(factor), seed, p.clip, p.levels)
        plain = ops.run_uncharged(audit.add_levels, (1, task.update.columns + 2, F64), *arguments)
    return ops.run_uncharged(audit.compare, (1, 3, F64), result.total, plain, p.q)
