"""A hand between a protocol's machines and whatever drives them: each call can be noted, timed or altered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from simfl.engine.driver import drive
from simfl.engine.setup import ClosedRound
from simfl.experiment.build import Experiment, make_clocks
from simfl.learning.threads import one_thread
from simfl.protocols.loopback import LoopbackRound
from simfl.protocols.machine import SERVER, Abort, Effects, Refuse, Result, Send, Verdict
from simfl.results.trace import Trace

CALLS = ("start", "begin", "receive", "submit", "expire", "gone", "back")

Call = Callable[..., Effects]
"""(party, name of the call, the machine's own method, *its arguments) -> the effects to be carried out."""


def watched(machine: Any, party: int, call: Call) -> Any:
    """Return the machine, each of whose calls goes through `call`."""
    for name in CALLS:
        own = getattr(machine, name, None)
        if own is not None:
            setattr(machine, name, partial(call, party, name, own))
    return machine


@dataclass(frozen=True)
class Played:
    """A run on the engine. exact: of each aggregate, None without one; machines: the last of each party."""

    trace: Trace
    exact: list[bool | None]
    machines: dict[int, Any]


def play(experiment: Experiment, protocol: str, call: Call | None = None) -> Played:
    """Run a scenario's protocol on the engine, its machines' calls through `call`."""
    session = experiment.session(protocol, make_clocks(experiment)(protocol))
    setup, machines, exact = session.machines, dict[int, Any](), list[bool | None]()

    def made(party: int, machine: Any) -> Any:
        machines[party] = machine if call is None else watched(machine, party, call)
        return machine

    async def publish(closed: ClosedRound) -> None:
        audit = await session.ops.get(closed.audit) if closed.audit else None
        exact.append(None if audit is None else not audit[0][:2].any())

    session.machines = replace(
        setup,
        client=lambda user, *rest: made(user, setup.client(user, *rest)),
        server=lambda *arguments: made(SERVER, setup.server(*arguments)),
    )
    try:
        with one_thread():
            asyncio.run(drive(session, publish, lambda: None))
    finally:
        session.ops.close()
    return Played(session.trace, exact, machines)


def note_in(out: LoopbackRound) -> Call:
    """Return a `Call` that writes down what the loopback would have seen."""

    def note(party: int, name: str, own: Callable[..., Effects], *arguments: Any) -> Effects:
        effects = own(*arguments)
        if party == SERVER and name == "receive":  # what was lost on the way is not among what was sent
            out.sent.append((arguments[0], SERVER, arguments[1]))
        for effect in effects:
            match effect:
                case Send(to, message) if party == SERVER:
                    out.sent.append((SERVER, to, message))
                case Result():
                    out.result = effect
                case Abort(reason):
                    out.reason = reason
                case Refuse():
                    out.refused.append((party, effect))
                case Verdict():
                    out.verdict = effect
        return effects

    return note
