"""The server of a live run of rounds: the engine's session, whose users are at the other ends of sockets.

It selects, opens rounds, runs the machine and closes rounds as in virtual time; it is the same code. What it
knows of a user is what came over its connection: the end of one is a loss. The aggregates are checked after
the run, as the server has no plain updates: the users are trained again, from the models that they were sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from simfl.dataplane.handles import Handle
from simfl.engine.carry_out import close_round, evaluation
from simfl.engine.rounds import RoundSession
from simfl.engine.setup import ClosedRound, RunConfig
from simfl.engine.transport import ToServer
from simfl.engine.user_round import UserRound
from simfl.live.door import Door
from simfl.live.wire import Envelope, Malformed, Over, Part
from simfl.protocols.machine import SERVER, Result
from simfl.results import trace as rows


class Told:
    """A user's entropy, of which it told how it rounded, and nothing else."""

    def __init__(self, rounding: bytes) -> None:
        self.rounding = rounding

    def peek(self, name: str) -> bytes:
        return self.rounding


class LiveServer(Door, RoundSession):
    """busy: (user, round) of users that may still work for a round. broken_off: (round, user, phase, time) of
    connections that ended amid a part."""

    begun = -1  # who is malformed before the run begins is counted too

    def __init__(self, wires: Any, world: RunConfig, *parts: Any) -> None:
        self.busy: set[tuple[int, int]] = set()
        self.known: dict[tuple[int, int], UserRound] = {}
        self.broken_off: list[tuple[int, int, str, int]] = []
        self.results: dict[int, tuple[Result, Handle, dict[tuple[int, int], UserRound]]] = {}
        super().__init__(wires, world, *parts)

    def _available(self) -> list[int]:
        return [user for user in super()._available() if user in self.peers]

    def _begin(self, chosen: list[int]) -> None:
        index = self.round
        super()._begin(chosen)
        late = {key: task for key, task in self.known.items() if key[1] >= index - 1 or self.working(task)}
        self.known = late | self.tasks
        for user in chosen:
            self.busy.add((user, index))
            plan = self.tasks[user, index].plan
            peer = self.peers.get(user)
            if peer is not None:
                peer.say(Part() if plan is None else Part(plan.point, plan.when, plan.delay_ns), index)

    def working(self, task: UserRound) -> bool:
        return (task.user, task.round) in self.busy and not (task.delivered or task.lost)

    def close_round(self, result: Result) -> ClosedRound:
        self.results[self.round] = result, self.host.weights, self.tasks
        return ClosedRound(self.round, self.env.now, None, None, self.machines.losses.rate_in(self.round))

    def end_round(self, step: int, closed: ClosedRound) -> None:
        super().end_round(step, closed)
        self.changed.set()
        for task in self.tasks.values():
            peer = self.peers.get(task.user)
            if task.round < self.round and peer is not None:
                peer.say(Over(), task.round)

    def on_lost(self, task: UserRound) -> None:
        """The server itself loses a user that uploaded in vain, by ending its connection."""
        peer = self.peers.pop(task.user, None)
        if peer is not None:
            peer.abort()

    def audited(self, trace: rows.Trace) -> Iterator[ClosedRound]:
        """Yield the closed rounds with their audits and evaluations, all of it done now.

        trace: of all parties, which says how much users trained.
        """
        ops = self.ops
        trainings = (row for row in trace if isinstance(row, rows.Step) and row.call == rows.TRAIN)
        what = {(row.party, row.round): row.what for row in trainings}
        for closed in self.outcomes:
            if closed.round in self.results:
                result, self.host.weights, self.tasks = self.results[closed.round]
                self.round = closed.round
                if not self._rounding_is_known(result):
                    yield replace(closed, evaluation=evaluation(self))
                    continue
                ops.begin((self.machines.name, closed.round, SERVER, "audit", ""), "recovery")
                for member in result.members:
                    key = member.user, closed.round
                    self.training.again(self.tasks[key], what.get(key, ""))
                ops.end()
                yield replace(close_round(self, result), at=closed.at)
            else:
                yield closed

    def _rounding_is_known(self, result: Result) -> bool:
        """Say if the sum can be checked: its members' seeds are the scenario's, or they told them."""
        if not self.wires.admission.own_entropy or not self.machines.kind.offline:
            return True
        for member in result.members:
            told = self.rounding.get((member.user, self.round))
            if told is None:
                return False
            self.tasks[member.user, self.round].entropy = Told(told)
        return True

    # -- users
    def _waited_in(self, index: int) -> str:
        """Return the phase that a round is in: for all that the server knows, a user is missed there."""
        timers = (row for row in reversed(self.trace) if isinstance(row, rows.TimerSet))
        return next((row.phase for row in timers if row.round == index), self.first_phase)

    def heard(self, user: int, envelope: Envelope) -> None:
        task = self.known.get((user, envelope.round))
        if task is None:
            raise Malformed(f"{envelope.message.kind}: of round {envelope.round}, which it is not in")
        t = ToServer(self.transport, envelope.message, user, SERVER, envelope.round, envelope.step)
        t.at = min(t.at, envelope.at)
        t.task = task
        self.later(user, True, t.arrived)

    def free(self, user: int, index: int) -> None:
        self.busy.discard((user, index))

    def refusal_round(self) -> int:
        return min(self.round, self.world.rounds - 1) if self.begun >= 0 else -1

    def gone(self, user: int) -> None:
        delay_ns = None
        if self.world.disconnect_ns is not None:
            latency_ns = self.latency_ns(user)
            delay_ns = max(self.world.disconnect_ns, latency_ns)
            delay_ns -= 0 if self.wires.latency_here else latency_ns  # the connection's end was as slow
        for task in self.known.values():
            current = task.round == self.round and not self.done
            if task.user == user and not task.lost and (current or self.working(task)):
                task.lost = True
                phase = self._waited_in(task.round)
                self.broken_off.append((task.round, user, phase, self.env.now))
                if delay_ns is not None:
                    more = {"round": task.round}
                    gone = partial(self.at_server, task.server, "gone", user, -2 - user, phase, **more)
                    self.disconnections.tell_at(self.env.now + delay_ns, user, gone)

    def back(self, user: int) -> None:
        self.disconnections.tell(user)  # a new connection tells that the old one broke
