"""Effects of a machine's step, carried out on the session: rows, timers, and the ends of rounds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, assert_never
from weakref import ref

from simfl.engine.close_round import close_round
from simfl.engine.devices import Job
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
    Timer,
    Verdict,
    name_of,
)
from simfl.results import trace as rows

if TYPE_CHECKING:
    from simfl.engine.session import Session


def carry_out(session: Session, effect: Effect, party: int, job: Job, step: int) -> None:
    """Carry out an effect that is not a message."""
    now, add, index = session.env.now, session.trace.add, job.round
    match effect:
        case Timer(name, phase, subject):
            fires = now + session.world.deadlines_ns[name]
            row = add(rows.TimerSet(index, name, phase, name_of(subject), step, now, fires))
            session.env.at(fires, partial(_fire, session, ref(job.machine), effect, row, index))
        case Ready() if job.task is not None:
            job.task.ready = True
            session.training.start_if_possible(job.task, step)
        case Result():
            members = tuple((m.user, name_of(m.update), m.staleness) for m in effect.members)
            add(rows.Aggregated(session.round, members, step, now))
            session.end_round(step, close_round(session, effect))
        case Abort(reason):
            session.abort_round(reason, step)
        case GiveUp(users, phase, update):
            add(rows.GaveUp(index, phase, name_of(update), users, step, now))
            session.on_given_up(users, update)
        case Ignore(sender, message, _, subject):
            add(rows.Ignored(index, party, sender, message, name_of(subject), effect.why, step, now))
        case Discard(update):
            about = name_of(update)
            add(rows.Ignored(index, party, update.user, rows.UPDATE, about, effect.why, step, now))
            session.on_discarded(update)
        case Refuse(sender, message, why, subject):
            add(rows.Refused(index, party, sender, message, name_of(subject), why, step, now))
        case Verdict(survivors, reliable, private):
            add(rows.Judged(session.round, survivors, reliable, private, step, now))
        case Ready() | Send():
            pass  # there is nothing to train without a task; messages have gone out before
        case _:
            assert_never(effect)


def _fire(session: Session, whose: ref[Any], timer: Timer, row: int, index: int) -> None:
    """Let a deadline pass: a step of the server, if its machine still waits for it.

    The machine is held weakly: deadlines of a round that is over do not keep all that its server knew.
    """
    machine = whose()
    if machine is not None and not session.done and machine.awaits(timer):
        more = {"what": timer.name, "subject": timer.subject, "round": index}
        session.at_server(machine, "expire", timer, row, timer.phase, **more)
