"""Effects of a machine's step, carried out on the session: rows, timers, and the ends of rounds.

A round that ends leaves its audit, its evaluation and what is recorded of it, all as handles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never
from weakref import ref

from simfl.dataplane import audit
from simfl.dataplane.handles import F64, Handle
from simfl.dataplane.ops import seed_array
from simfl.engine.devices import Job
from simfl.engine.life import Life, Waits
from simfl.engine.setup import ClosedRound, RecordedRound, Stop
from simfl.protocols.machine import (
    Abort,
    Discard,
    Effect,
    GiveUp,
    Ignore,
    Ready,
    Refuse,
    Result,
    Send,
    Surplus,
    Timer,
    Verdict,
    name_of,
)
from simfl.results import trace as rows

if TYPE_CHECKING:
    from simfl.engine.session import Session
    from simfl.engine.user_round import UserRound


def carry_out(session: Session, effect: Effect, party: int, job: Job, step: int) -> None:
    """Carry out an effect that is not a message."""
    now, add, index = session.env.now, session.trace.add, job.round
    match effect:
        case Timer(name, phase, subject):
            fires = now + session.world.deadlines_ns[name]
            row = add(rows.TimerSet(index, name, phase, name_of(subject), step, now, fires))
            Life(session.env, _deadline(session, ref(job.machine), effect, fires, row, index), at_once=True)
        case Ready() if job.task is not None:
            job.task.ready = True
            session.training.go_on(job.task, step)
        case Result():
            members = tuple((m.user, name_of(m.update), m.staleness) for m in effect.members)
            add(rows.Aggregated(session.round, members, step, now))
            session.end_round(step, session.close_round(effect))
        case Abort(reason):
            session.abort_round(reason, step)
        case GiveUp(users, phase, update):
            add(rows.GaveUp(index, phase, name_of(update), users, step, now))
            session.on_given_up(users, update)
        case Surplus(users, phase):
            add(rows.Surplus(index, phase, users, step, now))
            for user in users:
                session.transport.down(job, user, Stop(index), step)
        case Ignore(sender, message, _, subject):
            add(rows.Ignored(index, party, sender, message, name_of(subject), effect.why, step, now))
        case Discard(update):
            name = name_of(update)
            add(rows.Ignored(index, party, update.user, rows.UPDATE, name, effect.why, step, now))
            session.on_discarded(update)
        case Refuse(sender, message, why, subject):
            add(rows.Refused(index, party, sender, message, name_of(subject), why, step, now))
        case Verdict(survivors, reliable, private):
            add(rows.Judged(index, survivors, reliable, private, step, now))
        case Ready() | Send():
            pass  # there is nothing to train without a task; messages have gone out before
        case _:
            assert_never(effect)


def _deadline(
    session: Session, machine_of: ref[Any], timer: Timer, fires_ns: int, row: int, index: int
) -> Waits:
    """Wait for a deadline; it is a step of the server, if its machine still waits for it then.

    The machine is held weakly: deadlines of a round that is over do not keep all that its server knew.
    """
    yield fires_ns - session.env.now
    machine = machine_of()
    if machine is not None and not session.done and machine.awaits(timer):
        more = {"what": timer.name, "subject": timer.subject, "round": index}
        session.at_server(machine, "expire", timer, row, timer.phase, **more)


def close_round(session: Session, result: Result) -> ClosedRound:
    """Close the round in progress of a session with this aggregate."""
    kind, index, ops, world = session.machines.kind, session.round, session.ops, session.world
    involved = session.members(result)
    deltas = [task.update for task, _ in involved if task.update is not None]
    samples = [task.samples if kind.weighted else 1 for task, _ in involved]
    weights = [n * factor for n, (_, factor) in zip(samples, involved, strict=True)]
    if kind.offline:
        audited = _audit_in_field(session, result, involved, samples)
    else:
        audited = ops.run_uncharged(audit.real, (1, 3, F64), result.total, deltas, weights)
    for task, _ in involved:
        task.update = None  # what holds on to it from here on is what was asked for above
    users = tuple(task.user for task, _ in involved)
    record = RecordedRound(result.mean, users, tuple(weights), tuple(deltas)) if world.record else None
    return ClosedRound(
        index,
        session.env.now,
        audited,
        evaluation(session),
        session.machines.losses.rate_in(index),
        clipped=tuple(task.clipped for task, _ in involved if task.clipped is not None),
        record=record,
    )


def evaluation(session: Session) -> Handle | None:
    """Return accuracy and loss of the global model after this round, where they are asked for."""
    index, world = session.round, session.world
    due = (index + 1) % world.evaluate_every == 0 or index + 1 == world.rounds
    if due and session.trainer.evaluates:
        return session.ops.run_uncharged(session.trainer.evaluate, (1, 2, F64), session.host.weights)
    return None


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
