"""When users are online. The same for every protocol.

A user's draws come from streams of its own, so its days do not depend on how many users there are, nor on
what became of it before. A presence that never changes again costs no events, so that a run in which
nothing is left to happen can be told from one that waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from simfl.engine.population import draw
from simfl.engine.virtual import lasting, nanoseconds
from simfl.scenario import schema
from simfl.streams import Streams

Changes = Iterator[tuple[int, bool]]
"""(nanoseconds that a state lasts, whether online), one after the other; the last one stays."""


class Availability:
    """When users are online: drawn anew for each round, or changing with time.

    intervals: of a trace, user -> (from, to) in seconds, in order of time; those who are not there never are.
    """

    def __init__(
        self,
        spec: schema.Availability,
        users: int,
        streams: Streams,
        intervals: Mapping[int, Sequence[tuple[float, float]]] | None = None,
    ) -> None:
        self.spec = spec
        self.users = users
        self.streams = streams
        self.intervals = intervals or {}
        self._p = np.ones(users)
        if isinstance(spec, schema.Bernoulli):
            choices = spec.p if isinstance(spec.p, tuple) else (spec.p,)
            self._p = streams.rng("availability", "p").choice(choices, users)

    @property
    def timed(self) -> bool:
        """Whether presence changes with time, in `changes`; otherwise it is one of rounds, in `in_round`."""
        by_round = isinstance(self.spec, schema.Bernoulli) and self.spec.slot_s is None
        return not by_round and not isinstance(self.spec, schema.Always)

    @property
    def ever_online(self) -> int:
        """How many users are online at all, sooner or later."""
        match self.spec:
            case schema.Bernoulli():
                return int((self._p > 0).sum())
            case schema.Diurnal(high=high):
                return self.users if high > 0 else 0
            case schema.Trace():
                return len(self.intervals)
        return self.users

    def in_round(self, index: int) -> np.ndarray:
        """Boolean [N]: who is online in a synchronous round, where availability is drawn by round."""
        if isinstance(self.spec, schema.Bernoulli) and not self.timed:
            draws: np.ndarray = self.streams.rng("availability", "round", index).random(self.users)
            return draws < self._p
        return np.ones(self.users, bool)

    def changes(self, user: int) -> Changes:
        """How a user comes and goes; empty if it is always online."""
        match self.spec:
            case schema.Sessions(on_s=on_s, off_s=off_s):
                return self._sessions(user, on_s, off_s)
            case schema.Bernoulli(slot_s=slot_s) if slot_s is not None:
                p = float(self._p[user])
                return self._slots(user, slot_s, lambda at_s: p, never=p == 0, always=p == 1)
            case schema.Diurnal(low=low, high=high, slot_s=slot_s) as day:
                rng = self.streams.rng("availability", "time zone", user)
                offset_s = float(rng.normal(0.0, day.spread_s))

                def p_at(at_s: float) -> float:
                    return online_probability(day, at_s - offset_s)

                return self._slots(user, slot_s, p_at, never=high == 0, always=low == 1)
            case schema.Trace():
                return _listed(self.intervals.get(user, ()))
        return iter(())

    def _sessions(self, user: int, on_s: schema.Distribution, off_s: schema.Distribution) -> Changes:
        rng = self._rng(user)
        mean_on, mean_off = (_mean(d) for d in (on_s, off_s))
        online = bool(rng.random() < mean_on / (mean_on + mean_off))
        while True:
            length = draw(on_s if online else off_s, rng, 1)[0]
            yield lasting(length), online
            online = not online

    def _slots(
        self, user: int, slot_s: float, p_at: Callable[[float], float], never: bool, always: bool
    ) -> Changes:
        if never or always:
            yield 0, always
            return
        rng, slot = self._rng(user), 0
        while True:
            yield lasting(slot_s), bool(rng.random() < p_at(slot * slot_s))
            slot += 1

    def _rng(self, user: int) -> np.random.Generator:
        return self.streams.rng("availability", "user", user)


def online_probability(day: schema.Diurnal, at_s: float) -> float:
    """low + (high - low) (1 + cos(2 pi (t - peak) / period)) / 2, t being a user's own time of day."""
    turn = 2 * math.pi * (at_s - day.peak_s) / day.period_s
    return day.low + (day.high - day.low) * (1 + math.cos(turn)) / 2


def _listed(intervals: Sequence[tuple[float, float]]) -> Changes:
    """Online in the intervals; those that touch are one."""
    now = 0
    for interval in intervals:
        begin, end = map(nanoseconds, interval)
        if begin > now:
            yield begin - now, False
        if end > begin:  # one that rounds to nothing is none
            yield end - begin, True
        now = end
    yield 0, False


def _mean(distribution: schema.Distribution) -> float:
    match distribution:
        case schema.Fixed(value=value):
            return value
        case schema.Uniform(low=low, high=high):
            return (low + high) / 2
        case schema.LogNormal(median=median, sigma=sigma):
            return float(median * np.exp(sigma**2 / 2))
        case schema.Exponential(mean=mean):
            return mean
    raise TypeError(f"unknown distribution {distribution}")  # pragma: no cover
