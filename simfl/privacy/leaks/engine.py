"""A scenario's run on the unmodified engine, on symbols: its network, churn, deadlines and buffers.

Messages keep the sizes of the whole model, so the run takes the virtual time that it takes with content;
vectors have a few coordinates as terms, since longer ones repeat what a code does to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any

from simfl.dataplane.symbolic import SymbolicOps
from simfl.dataplane.terms import Coordinate
from simfl.engine.driver import drive
from simfl.engine.setup import ClosedRound
from simfl.privacy.leaks.elimination import Line
from simfl.privacy.leaks.views import NamedEntropy, Sent, Setup, Transcript, is_exact, shortened, sum_of
from simfl.protocols.lightsecagg_async_client import Recover
from simfl.protocols.machine import SERVER, Effects, Result, Send, Update
from simfl.runs.build import Experiment, make_clocks
from simfl.runs.watch import Call, watched


def on_engine(
    experiment: Experiment,
    protocol: str,
    published: Callable[[], None] = lambda: None,
    ops: SymbolicOps | None = None,
    draw: Callable[..., NamedEntropy] = NamedEntropy,
    name: bytes | None = None,
    call: Call | None = None,
) -> Transcript:
    """Run an entry of a scenario, and return what was sent, drawn and summed.

    published: called as a round ends. name: of another session than the scenario's. draw: makes a party's
    source of entropy. call: takes each call of the server.
    """
    clocks, q = make_clocks(experiment), experiment.scenario.params(protocol, 1).q
    ops = ops or SymbolicOps(q)
    session = experiment.session(protocol, clocks(protocol), ops)
    machines, users = session.setup, tuple(range(session.config.users))
    if name is not None:
        machines = replace(machines, params=replace(machines.params, session=name))
    setup = Setup(machines.protocol, shortened(machines.protocol, machines.params), users)
    ops.longest = setup.coordinates
    watcher = _Watcher(setup, Transcript(q, users))

    def entropy(*scope: Any) -> NamedEntropy:
        made = draw(setup.root, *scope)
        watcher.seen.drawn.setdefault(int(scope[0]), [])
        made.drawn = watcher.seen.drawn[int(scope[0])]  # of all rounds, as an adversary forgets nothing
        return made

    session.setup = replace(
        machines,
        entropy=entropy,
        client=lambda user, *rest: watcher.client(user, rest[-1].scope[1], machines.client(user, *rest)),
        server=lambda *rest: watcher.server(rest[-1].scope[1], _called(machines.server(*rest), call)),
    )

    async def publish(closed: ClosedRound) -> None:
        """Keep nothing of a round: the laws judge the symbolic result."""
        published()

    asyncio.run(drive(session, publish, lambda: None))
    watcher.close()
    watcher.seen.misuse += ops.misuse
    watcher.seen.kernels |= ops.kernels
    return watcher.seen


def _called(server: Any, call: Call | None) -> Any:
    return server if call is None else watched(server, SERVER, call)


class _Watcher:
    """Notes what machines receive, submit and come to."""

    def __init__(self, setup: Setup, seen: Transcript) -> None:
        self.setup, self.seen = setup, seen
        self.names: dict[Hashable, tuple[int, Hashable]] = {}  # (round, user), or an update's id
        self.updates: dict[int, Update] = {}
        self.servers: dict[int, Any] = {}
        self.summed: set[int] = set()  # rounds with a result

    def client(self, user: int, index: int, machine: Any) -> Any:
        return watched(machine, user, partial(self._call, index))

    def server(self, index: int, machine: Any) -> Any:
        self.servers[index] = machine
        return watched(machine, SERVER, partial(self._call, index))

    def _call(self, index: int, party: int, name: str, own: Any, *arguments: Any) -> Effects:
        if name == "receive":
            label = f"round {index}: " if index else ""
            self.seen.sent.append(Sent(arguments[0], party, arguments[1], label))
        elif name == "submit":
            self._submitted(index, party, arguments[0])
        effects: Effects = own(*arguments)
        for effect in effects:
            if isinstance(effect, Result):
                self._result(index, effect)
            elif isinstance(effect, Send) and isinstance(effect.message, Recover):
                self._asked(effect.message)
        return effects

    def _submitted(self, index: int, user: int, update: Update) -> None:
        first: Coordinate = update.delta.content[0][0]
        self.names[update.id or (index, user)] = first.user, first.update
        self.updates[user] = update

    def _result(self, index: int, result: Result) -> None:
        names = {m.update or m.user: self.names[m.update or (index, m.user)] for m in result.members}
        lines = sum_of(self.setup, result, names, self.updates)
        self.summed.add(index)
        self.seen.results += lines
        self._allow(lines)
        self.seen.exact &= is_exact(result, lines, self.seen.q)

    def _asked(self, request: Recover) -> None:
        """Allow the sum that a recovery asks for, whether or not it comes to an aggregate."""
        weights = zip(request.masks, request.weights, strict=True)
        self._allow(self.setup.sum_over({self.names[mask]: weight for mask, weight in weights}))

    def _allow(self, lines: list[Line]) -> None:
        """Allow a sum none of whose updates is in another one already: an update is summed once."""
        summed = [set(line) for line in self.seen.sums]
        if not any(set(line) & one for line in lines for one in summed):
            self.seen.sums += lines

    def close(self) -> None:
        """Allow the sum that a round without a result had announced: answers may have come late."""
        for index, server in self.servers.items():
            told = getattr(server, "survivors", None)
            if told and index not in self.summed:
                self._allow(self.setup.sum_over({self.names[index, user]: 1 for user in told}))
