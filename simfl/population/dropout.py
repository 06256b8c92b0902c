"""Users: their devices, and how they are lost. The same for every protocol.

Every draw comes from a stream named by its purpose, user and round, so that two protocols meet the same
world, and a loss planned at a point that a protocol does not have happens at its next point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from simfl.random_streams import Streams
from simfl.scenario import schema
from simfl.virtual_time import nanoseconds


@dataclass(frozen=True, slots=True)
class PlannedLoss:
    """How a user is lost in one round: at its first action at `point`."""

    point: str
    when: str
    delay_ns: int = 0


class Losses:
    """The losses within rounds that a scenario asks for, at the points that a protocol has."""

    def __init__(self, spec: schema.Dropout, users: int, streams: Streams, points: Sequence[str]) -> None:
        self.spec = spec.as_rate if isinstance(spec, schema.WorstCase) else spec
        self.users = users
        self.streams = streams
        self.points = points

    def rate(self, index: int) -> float | None:
        """The drop-out rate of a round, where the scenario states one."""
        if not isinstance(self.spec, schema.Rate):
            return None
        rates = self.spec.rate if isinstance(self.spec.rate, tuple) else (self.spec.rate,)
        return rates[index % len(rates)]

    def in_round(self, index: int, selected: Sequence[int]) -> dict[int, PlannedLoss]:
        """Who of the selected is lost in a synchronous round, and how."""
        match self.spec:
            case schema.Rate(at=at, when=when):
                order = self.streams.rng("losses", index).permutation(self.users)
                rank = np.argsort(order)
                count = round((self.rate(index) or 0.0) * len(selected))
                lost = sorted(selected, key=lambda user: int(rank[user]))[:count]
                plan = self._plan(at, when)
                return dict.fromkeys(lost, plan) if plan else {}
            case schema.PerStep():
                coins = self.streams.rng("losses", "steps", index).random((self.users, len(schema.STEPS)))
                return {u: plan for u in selected if (plan := self._at_a_step(coins[u]))}
            case schema.Script():
                return {u: plan for u in selected if (plan := self._scripted(u, index))}
        return {}

    def in_cycle(self, user: int, cycle: int) -> PlannedLoss | None:
        """How a user is lost in one cycle of an asynchronous run, if it is."""
        match self.spec:
            case schema.Rate(at=at, when=when):
                coin = self.streams.rng("losses", user, cycle).random()
                return self._plan(at, when) if coin < (self.rate(0) or 0.0) else None
            case schema.PerStep():
                rng = self.streams.rng("losses", "steps", user, cycle)
                return self._at_a_step(rng.random(len(schema.STEPS)))
            case schema.Script():
                return self._scripted(user, cycle)
        return None

    def _at_a_step(self, coins: Iterable[float]) -> PlannedLoss | None:
        """Lost at the first step whose coin, uniform on [0, 1), is below q."""
        assert isinstance(self.spec, schema.PerStep)
        for at, coin in zip(schema.STEPS, coins, strict=True):
            if coin < self.spec.q:
                return self._plan(at, self.spec.when)
        return None

    def _scripted(self, user: int, index: int) -> PlannedLoss | None:
        assert isinstance(self.spec, schema.Script)
        for loss in self.spec.losses:
            if (loss.user, loss.round) == (user, index):
                return self._plan(loss.at, loss.when, loss.delay_s or 0.0)
        return None

    def _plan(self, at: str, when: str, delay_s: float = 0.0) -> PlannedLoss | None:
        later = schema.POINTS[schema.POINTS.index(at) :]
        point = next((p for p in later if p in self.points), None)
        return PlannedLoss(point, when, nanoseconds(delay_s)) if point else None
