"""When users are online. The same for every protocol.

A user's days are a function of the seed, its number and the time: they do not depend on how many users there
are, on what became of it before, nor on who asks. So they are read when somebody looks at the user, and a
million users at whom nobody looks cost nothing. A state that never changes again says so, so that a run in
which nothing is left to happen can be told from one that waits.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from simfl.population.dropout import STANDARD_NORMAL, quantile
from simfl.random_streams import Streams
from simfl.scenario import schema
from simfl.virtual_time import lasting, nanoseconds

FOR_EVER = 2**80
"""Later than any run lasts, in nanoseconds."""

State = tuple[bool, int]
"""Whether a user is online, and until when (nanoseconds) it surely stays so."""

Days = Callable[[int, int], State]
"""The state of a user at a time."""


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
        self.at: Days = self._chosen()

    @property
    def timed(self) -> bool:
        """Whether presence changes with time, in `at`; otherwise it is one of rounds, in `in_round`."""
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

    def _chosen(self) -> Days:
        match self.spec:
            case schema.Sessions(on_s=on_s, off_s=off_s):
                return self._alternating(on_s, off_s)
            case schema.Bernoulli(slot_s=slot_s) if slot_s is not None:
                return self._slots(slot_s, lambda user, at_s: float(self._p[user]), steady=True)
            case schema.Diurnal(slot_s=slot_s) as day:
                zones = self.streams.uniforms("availability", "time zone")

                def p_at(user: int, at_s: float) -> float:
                    zone_s = day.spread_s * STANDARD_NORMAL.inv_cdf(zones(user, 0))
                    return online_probability(day, at_s - zone_s)

                return self._slots(slot_s, p_at, steady=day.low == day.high)
            case schema.Trace():
                return self._listed
        return lambda user, now: (True, FOR_EVER)

    def _alternating(self, on_s: schema.Distribution, off_s: schema.Distribution) -> Days:
        """Sessions one after the other. Of a user's draws the first says how it starts, the k-th after it how
        long its k-th session lasts."""
        draws = self.streams.uniforms("availability", "user")
        mean_on, mean_off = (_mean(d) for d in (on_s, off_s))
        begins_online = mean_on / (mean_on + mean_off)
        latest: dict[int, tuple[int, bool, int, int]] = {}  # the session in which a user was last looked at

        def at(user: int, now: int) -> State:
            number, online, begin, end = latest.get(user, (0, False, 0, 0))
            if now < begin or not number:
                number, online, begin, end = 0, draws(user, 0) >= begins_online, 0, 0
            if now >= end:
                for u in draws.since(user, number + 1):
                    number, online, begin = number + 1, not online, end
                    end += lasting(quantile(on_s if online else off_s, u))
                    if now < end:
                        break
                latest[user] = number, online, begin, end
            return online, end

        return at

    def _slots(self, slot_s: float, p_at: Callable[[int, float], float], steady: bool) -> Days:
        """A coin in each slot. steady: p does not change with time, so 0 and 1 are for ever."""
        draws, slot_ns = self.streams.uniforms("availability", "user"), lasting(slot_s)

        def at(user: int, now: int) -> State:
            slot = now // slot_ns
            p = p_at(user, slot * slot_s)
            if steady and p in (0, 1):
                return p == 1, FOR_EVER
            return draws(user, slot) < p, (slot + 1) * slot_ns

        return at

    def _listed(self, user: int, now: int) -> State:
        """Online in the intervals; one that rounds to nothing is none."""
        intervals = self.intervals.get(user, ())
        after = bisect_right(intervals, now, key=lambda interval: nanoseconds(interval[0]))
        if after and now < (end := nanoseconds(intervals[after - 1][1])):
            return True, end
        return False, nanoseconds(intervals[after][0]) if after < len(intervals) else FOR_EVER


def online_probability(day: schema.Diurnal, at_s: float) -> float:
    """low + (high - low) (1 + cos(2 pi (t - peak) / period)) / 2, t being a user's own time of day."""
    turn = 2 * math.pi * (at_s - day.peak_s) / day.period_s
    return day.low + (day.high - day.low) * (1 + math.cos(turn)) / 2


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
