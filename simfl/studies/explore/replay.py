"""One round of a scenario on the engine, watched under the explorer's laws."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from simfl.engine.driver import drive
from simfl.engine.session import Session
from simfl.engine.setup import ClosedRound
from simfl.experiment.build import build, make_clocks
from simfl.learning.threads import one_thread
from simfl.protocols.loopback import LoopbackRound
from simfl.protocols.machine import SERVER, Abort, Effects, Refuse, Result, Send, Verdict
from simfl.studies.explore.cohort import Cohort
from simfl.studies.explore.invariants import Observation, Rules
from simfl.studies.explore.patterns import Detect, Pattern

CALLS = ("start", "begin", "receive", "submit", "expire", "gone", "back")


def drive_here(session: Session, publish: Callable[[ClosedRound], Awaitable[None]]) -> None:
    """Drive a session to its end."""
    try:
        with one_thread():
            asyncio.run(drive(session, publish, lambda: None))
    finally:
        session.ops.close()


def replay(cohort: Cohort, pattern: Pattern, detect: Detect) -> Observation:
    """The pattern's scenario on the engine, as the loopback would have seen it."""
    study = build(cohort.replayable(pattern, detect))
    session = study.session(cohort.protocol, make_clocks(study)(cohort.protocol))
    machines, out = session.machines, LoopbackRound()
    clients: dict[int, Any] = {}
    servers: list[Any] = []

    def client(user: int, *rest: Any) -> Any:
        clients[user] = watched(machines.client(user, *rest), user, out)
        return clients[user]

    def server(*arguments: Any) -> Any:
        servers.append(watched(machines.server(*arguments), SERVER, out))
        return servers[-1]

    session.machines = replace(machines, client=client, server=server)
    audits: list[Any] = []

    async def publish(outcome: ClosedRound) -> None:
        audits.append(await session.ops.get(outcome.audit) if outcome.audit else None)

    drive_here(session, publish)
    exact = None if audits[0] is None else not audits[0][0][:2].any()
    rules = Rules(cohort.kind, machines.params, getattr(servers[0], "graph", None), cohort.points)
    return Observation(rules, out, clients, exact)


def watched(machine: Any, party: int, out: LoopbackRound) -> Any:
    """The machine, each of whose calls is written down."""
    for name in CALLS:
        call = getattr(machine, name, None)
        if call is not None:
            setattr(machine, name, _noting(call, name, party, out))
    return machine


def _noting(call: Any, name: str, party: int, out: LoopbackRound) -> Any:
    def noted(*arguments: Any) -> Effects:
        effects: Effects = call(*arguments)
        if party == SERVER and name == "receive":
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

    return noted
