"""Note, time or alter the calls of a protocol's machines, whatever drives them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from simfl.engine.driver import drive
from simfl.engine.setup import ClosedRound
from simfl.learning.trainer import one_thread
from simfl.protocols.loopback import LoopbackRound
from simfl.protocols.machine import SERVER, Effects, Ignore, Send
from simfl.runs.build import Experiment, make_clocks
from simfl.scenario.schema import Scenario
from simfl.trace.rows import Trace

CALLS = ("start", "begin", "receive", "submit", "expire", "gone", "back")

Call = Callable[..., Effects]
"""(party, name of the call, the machine's own method, *its arguments) -> the effects to be carried out."""


def watched(machine: Any, party: int, call: Call) -> Any:
    """Return the machine with each of its calls through `call`."""
    # Set on the instance: a proxy would miss the calls that a machine makes of itself.
    for name in filter(partial(hasattr, machine), CALLS):
        setattr(machine, name, partial(call, party, name, getattr(machine, name)))
    return machine


@dataclass
class Played(LoopbackRound):
    """A run on the engine."""

    scenario: Scenario = field(kw_only=True)
    trace: Trace = field(kw_only=True)
    exact: list[bool | None] = field(default_factory=list)
    """By round, whether the aggregate equals the plain sum; None without one."""
    machines: dict[int, Any] = field(default_factory=dict)
    """Latest machine of each party."""


def play(experiment: Experiment, protocol: str, call: Call | None = None) -> Played:
    """Run a scenario's protocol on the engine, its machines' calls through `call`."""
    session = experiment.session(protocol, make_clocks(experiment)(protocol))
    setup, played = session.setup, Played(scenario=experiment.scenario, trace=session.trace)

    def noted(party: int, name: str, own: Callable[..., Effects], *arguments: Any) -> Effects:
        effects = call(party, name, own, *arguments) if call else own(*arguments)
        if party == SERVER and name == "receive":  # what was lost on the way is not among what was sent
            played.sent.append((arguments[0], SERVER, arguments[1]))
        if name == "expire" and not any(isinstance(effect, Ignore) for effect in effects):
            played.passed.append(arguments[0].name)
        for effect in effects:
            if isinstance(effect, Send) and party == SERVER:
                played.sent.append((SERVER, effect.to, effect.message))
            played.keep(party, effect)
        return effects

    def made(party: int, machine: Any) -> Any:
        played.machines[party] = watched(machine, party, noted)
        return machine

    async def publish(closed: ClosedRound) -> None:
        audit = await session.ops.get(closed.audit) if closed.audit else None
        played.exact.append(None if audit is None else not audit[0][:2].any())

    session.setup = replace(
        setup,
        client=lambda user, *rest: made(user, setup.client(user, *rest)),
        server=lambda *arguments: made(SERVER, setup.server(*arguments)),
    )
    try:
        with one_thread():
            asyncio.run(drive(session, publish, lambda: None))
    finally:
        session.ops.close()
    return played
