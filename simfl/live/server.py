"""The server of a live run of rounds: the engine's session, whose users are at the other ends of sockets.

It selects, opens rounds, runs the machine and closes rounds as in virtual time; it is the same code.
"""

from __future__ import annotations

from typing import Any

from simfl.engine.rounds import RoundSession
from simfl.engine.setup import ClosedRound, RunConfig
from simfl.engine.user_round import UserRound
from simfl.live.parts import Parts
from simfl.live.wire import Envelope, Malformed
from simfl.results import trace as rows


class LiveServer(Parts, RoundSession):
    """The server's session of a live run in rounds. known: the parts of which messages may still come."""

    begun = -1  # who is malformed before the run begins is counted too

    def __init__(self, wires: Any, world: RunConfig, *parts: Any) -> None:
        self.known: dict[tuple[int, int], UserRound] = {}
        super().__init__(wires, world, *parts)

    def key(self, task: UserRound) -> tuple[int, int]:
        return task.user, task.round

    def _available(self) -> list[int]:
        return [user for user in super()._available() if user in self.peers]

    def shortage(self) -> str:
        busy = sum(self.working(task) for task in self.tasks.values())
        if not busy:
            return super().shortage()
        aborts = (row for row in reversed(self.trace) if isinstance(row, rows.Aborted))
        causes = (f" (round {a.round}: {a.reason})" for a in aborts if not a.reason.startswith("selection:"))
        last = next(causes, "")
        return f"{super().shortage()}; {busy} still work for an earlier round{last}"

    def _begin(self, chosen: list[int]) -> None:
        index = self.round
        super()._begin(chosen)
        late = {key: task for key, task in self.known.items() if key[1] >= index - 1 or self.working(task)}
        self.known = late | self.tasks
        for user in chosen:
            self.ask(self.tasks[user, index])

    def end_round(self, step: int, closed: ClosedRound) -> None:
        super().end_round(step, closed)
        for task in self.tasks.values():
            if task.round < self.round:
                self.recall(task)

    def on_lost(self, task: UserRound) -> None:
        """The server itself loses a user that uploaded in vain, by ending its connection."""
        self.dismiss(task.user)

    def part_of(self, user: int, envelope: Envelope) -> UserRound:
        task = self.known.get((user, envelope.round))
        if task is None:
            raise Malformed(f"{envelope.message.kind}: of round {envelope.round}, which it is not in")
        return task

    def refusal_round(self) -> int:
        return min(self.round, self.world.rounds - 1) if self.begun >= 0 else -1

    def gone(self, user: int) -> None:
        for task in self.known.values():
            current = task.round == self.round and not self.done
            if task.user == user and not task.lost and (current or self.working(task)):
                self.broke_off(task)

    def back(self, user: int) -> None:
        self.disconnections.tell(user)  # a new connection tells that the old one broke
