"""The server's side of users' parts in a live run, in rounds and over a buffer.

It tells users their parts and knows of one what came over its connection, the end of which is a loss. The
aggregates are checked after the run, as the server has no plain updates: the users are trained again, from
the models that they were sent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from simfl.crypto.keys import KEY_BYTES, low_order
from simfl.dataplane.handles import Handle
from simfl.engine.carry_out import close_round, evaluation
from simfl.engine.setup import ClosedRound, RunConfig
from simfl.engine.transport import ToServer
from simfl.engine.user_round import UserRound
from simfl.live.door import Door
from simfl.live.wire import Envelope, Malformed, Over, Part
from simfl.protocols.keyed_messages import Advertise
from simfl.protocols.machine import SERVER, Message, Result, name_of
from simfl.results import trace as rows


def number_of(task: UserRound) -> int:
    """Return the number of a user's part: its round, or over a buffer its cycle."""
    return task.round if task.id is None else task.id.cycle


def _check_keys(message: Message) -> None:
    """Raise Malformed for public keys that every honest user would refuse, which would end its round."""
    publics = message.publics if isinstance(message, Advertise) else None
    if publics is None or (publics.columns, publics.dtype.itemsize) != (KEY_BYTES, 1):
        return  # the machine refuses another shape
    if low_order(publics.content) is not None:
        raise Malformed("advertise: a low-order public key")


class Told:
    """A user's entropy, of which it told how it rounded, and nothing else."""

    def __init__(self, rounding: bytes) -> None:
        self.rounding = rounding

    def peek(self, name: str) -> bytes:
        return self.rounding


class Parts(Door):
    """busy: (user, number) of parts that users may still work for. broken_off: (round, user, update, phase,
    time) of connections that ended amid a part. results: of each closed round, with the model after it and
    the tasks behind it."""

    tasks: Any
    on_round: Callable[[ClosedRound], None] = staticmethod(lambda closed: None)
    """Called with each round as it finishes."""

    def __init__(self, wires: Any, world: RunConfig, *parts: Any) -> None:
        self.busy: set[tuple[int, int]] = set()
        self.broken_off: list[tuple[int, int, str, str, int]] = []
        self.results: dict[int, tuple[Result, Handle, dict[Any, UserRound]]] = {}
        super().__init__(wires, world, *parts)

    @abstractmethod
    def key(self, task: UserRound) -> Hashable:
        """Return the key of a task in `tasks`."""

    @abstractmethod
    def part_of(self, user: int, envelope: Envelope) -> UserRound | None:
        """Return the task that a user's message belongs to, if any. Malformed if there can be none."""

    # -- a user's part
    def ask(self, task: UserRound) -> None:
        """Tell a user that it takes part."""
        self.busy.add((task.user, number_of(task)))
        peer, plan = self.peers.get(task.user), task.plan
        if peer is not None:
            cycle = None if task.id is None else task.id.cycle
            point, when, delay_ns = ("", None, 0) if plan is None else (plan.point, plan.when, plan.delay_ns)
            peer.say(Part(point, when, delay_ns, cycle), task.round)

    def recall(self, task: UserRound) -> None:
        """Tell a user that its part is over."""
        peer = self.peers.get(task.user)
        if peer is not None:
            peer.say(Over(), number_of(task))

    def working(self, task: UserRound) -> bool:
        return (task.user, number_of(task)) in self.busy and not (task.delivered or task.lost)

    def free(self, user: int, index: int) -> None:
        self.busy.discard((user, index))

    def heard(self, user: int, envelope: Envelope) -> None:
        _check_keys(envelope.message)
        task = self.part_of(user, envelope)
        t = ToServer(self.transport, envelope.message, user, SERVER, envelope.round, envelope.step)
        t.at = min(t.at, envelope.at)
        t.task = task
        self.later(user, True, t.arrived)

    def broke_off(self, task: UserRound) -> None:
        """Lose a user whose connection ended during its part; report it if the server hears of losses."""
        task.lost = True
        phase, user = self._waited_in(task), task.user
        self.broken_off.append((task.round, user, name_of(task.id), phase, self.env.now))
        if self.world.disconnect_ns is not None:
            latency_ns = self.latency_ns(user)
            delay_ns = max(self.world.disconnect_ns, latency_ns)
            delay_ns -= 0 if self.wires.latency_here else latency_ns  # the connection's end was as slow
            more = {"subject": task.id, "round": task.round}
            gone = partial(self.at_server, task.server, "gone", user, -2 - user, phase, **more)
            self.disconnections.tell_at(self.env.now + delay_ns, user, gone)

    def _waited_in(self, task: UserRound) -> str:
        """Return the phase of the latest deadline: for all that the server knows, a user is missed there."""
        about = name_of(task.id)
        timers = (row for row in reversed(self.trace) if isinstance(row, rows.TimerSet))
        mine = (row.phase for row in timers if (row.round, row.about) == (task.round, about))
        return next(mine, self.first_phase)

    # -- the end of a round
    def close_round(self, result: Result) -> ClosedRound:
        behind = {self.key(task): task for task, _ in self.members(result)}
        self.results[self.round] = result, self.host.weights, behind
        return ClosedRound(self.round, self.env.now, None, None, self.machines.losses.rate_in(self.round))

    def end_round(self, step: int, closed: ClosedRound) -> None:
        super().end_round(step, closed)
        self.on_round(closed)
        self.changed.set()

    def audited(self, trace: rows.Trace) -> Iterator[ClosedRound]:
        """Yield the closed rounds with their audits and evaluations, all of it done now.

        trace: of all parties, which says how much users trained.
        """
        ops = self.ops
        trainings = (row for row in trace if isinstance(row, rows.Step) and row.call == rows.TRAIN)
        what = {(row.party, row.round, row.about): row.what for row in trainings}
        for closed in self.outcomes:
            if closed.round in self.results:
                result, self.host.weights, self.tasks = self.results[closed.round]
                self.round = closed.round
                if not self._rounding_is_known():
                    yield replace(closed, evaluation=evaluation(self))
                    continue
                ops.begin((self.machines.name, closed.round, SERVER, "audit", ""), "recovery")
                for task in self.tasks.values():
                    self.training.again(task, what.get((task.user, task.round, name_of(task.id)), ""))
                ops.end()
                yield replace(close_round(self, result), at=closed.at)
            else:
                yield closed

    def _rounding_is_known(self) -> bool:
        """Say if the sum can be checked: its members' seeds are the scenario's, or they told them."""
        if not self.wires.admission.own_entropy or not self.machines.kind.offline:
            return True
        for task in self.tasks.values():
            told = self.rounding.get((task.user, number_of(task)))
            if told is None:
                return False
            task.entropy = Told(told)
        return True
