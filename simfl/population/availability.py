"""Availability: the times at which users are online. The same for every protocol.

Invariant: a user's states are a function of the seed, its number and the time, not of the number of users, of
its past or of the reader. So a million users at whom nobody looks cost nothing. A state that never changes
again lasts `FOR_EVER`, so that a run in which nothing is left to happen can be told from one that waits.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from simfl.blocks import STANDARD_NORMAL, Distribution, Fraction, NonNegative, Pareto, Positive, Text
from simfl.errors import RunFailed
from simfl.kinds import Choice, Kinds
from simfl.population.intervals import read_intervals
from simfl.population.timelines import FOR_EVER as FOR_EVER
from simfl.population.timelines import alternating, check_day, daily, in_turn
from simfl.random_streams import Streams
from simfl.virtual_time import lasting, nanoseconds

State = tuple[bool, int]  # whether a user is online, and until when (nanoseconds) it surely stays so
Days = Callable[[int, int], State]  # the state of a user at a time


@dataclass(frozen=True)
class OnlineTimes:
    """The states of all users of a run. ever_online: boolean [N], the users who are online sooner or later.
    by_round: boolean [N], the users online in a synchronous round, where that is drawn anew for each."""

    ever_online: NDArray[np.bool_]
    at: Days = lambda user, now: (True, FOR_EVER)
    by_round: Callable[[int], NDArray[np.bool_]] | None = None


class Availability(Choice):
    """A model of when users are online. One of your own is most simply a `UserStates`."""

    @abstractmethod
    def times(self, users: int, streams: Streams) -> OnlineTimes:
        """Return when so many users are online. A user's draws must not depend on how many there are."""

    @property
    def changes(self) -> Literal["never", "by round", "with time"]:
        """The times at which a user may come or go."""
        return "with time"

    def problems(self, asynchronous: bool) -> Iterator[tuple[str, str]]:
        """Yield what does not fit a run in rounds, or an asynchronous one, as (key, message)."""
        yield from ()


class UserStates(Availability):
    """A model by a generator, `states`, for each user.

    >>> class Charging(UserStates):
    ...     night_s: float = 28_800
    ...     def states(self, user, rng):
    ...         while True:
    ...             yield rng.normal(57_600, 3_600), False
    ...             yield self.night_s, True
    >>> everyone = Charging(night_s=100.0).times(3, Streams(1))
    >>> everyone.at(0, 0)[0]
    False
    """

    @abstractmethod
    def states(self, user: int, rng: np.random.Generator) -> Iterator[tuple[float, bool]]:
        """Yield (seconds that a state lasts, whether the user is online then), one after the other. The last
        state stays; a user without states is never online. rng: the user's own stream."""

    def times(self, users: int, streams: Streams) -> OnlineTimes:
        def states(user: int) -> Iterator[tuple[float, bool]]:
            for seconds, online in self.states(user, streams.rng("availability", "states", user)):
                if not seconds > 0:
                    name = f"availability {type(self).__name__}, user {user}"
                    raise RunFailed(f"{name}: a state lasts {seconds} s: it must be above 0")
                yield seconds, online

        return OnlineTimes(np.ones(users, bool), in_turn(states, False))


class Always(Availability):
    """Every user is online all the time."""

    kind: Literal["always"] = "always"

    @property
    def changes(self) -> Literal["never"]:
        return "never"

    def times(self, users: int, streams: Streams) -> OnlineTimes:
        return OnlineTimes(np.ones(users, bool))


class Bernoulli(Availability):
    """Each user is online with probability p, anew in each round or slot (Multi-RoundSecAgg section 6)."""

    main_key = "p"
    kind: Literal["bernoulli"] = "bernoulli"
    p: Fraction | Annotated[tuple[Fraction, ...], Field(min_length=1)]
    """The probability of being online, or a list from which each user draws its own."""
    slot_s: Positive | None = None
    """Drawn anew in each slot of so many seconds, instead of in each round."""

    @property
    def changes(self) -> Literal["by round", "with time"]:
        return "by round" if self.slot_s is None else "with time"

    def problems(self, asynchronous: bool) -> Iterator[tuple[str, str]]:
        if asynchronous and self.changes == "by round":
            yield "slot_s", "missing; an asynchronous run has no rounds to draw p in"

    def times(self, users: int, streams: Streams) -> OnlineTimes:
        choices = self.p if isinstance(self.p, tuple) else (self.p,)
        p = streams.rng("availability", "p").choice(choices, users)
        ever_online = p > 0
        if self.slot_s is not None:
            at = _slots(streams, self.slot_s, lambda user, at_s: float(p[user]), steady=True)
            return OnlineTimes(ever_online, at)

        def by_round(index: int) -> NDArray[np.bool_]:
            return streams.rng("availability", "round", index).random(users) < p

        return OnlineTimes(ever_online, by_round=by_round)


class Sessions(Availability):
    """On and off times alternate; a user starts in the stationary state (seconds)."""

    kind: Literal["sessions"] = "sessions"
    on_s: Distribution
    """The time for which a user stays online."""
    off_s: Distribution
    """The time for which it stays away."""

    @field_validator("on_s", "off_s")
    @classmethod
    def has_a_mean(cls, drawn: Distribution) -> Distribution:
        if isinstance(drawn, Pareto) and drawn.alpha <= 1:
            raise ValueError(f"alpha={drawn.alpha:g} must be above 1: sessions need a mean, to start from")
        return drawn

    def times(self, users: int, streams: Streams) -> OnlineTimes:
        draws = streams.uniforms("availability", "user")  # cheaper than a generator for each user
        at = in_turn(lambda user: alternating(draws.since(user, 0), self.on_s, self.off_s), False)
        return OnlineTimes(np.ones(users, bool), at)


class Diurnal(Availability):
    """The probability of being online follows the time of day, and is drawn upon anew in each slot (seconds).

    It is `high` at `peak_s` and falls along a cosine to `low` half a `period_s` later. Each user's day is
    moved by one draw from Normal(0, spread_s): its time zone.
    """

    kind: Literal["diurnal"] = "diurnal"
    low: Fraction
    """The least probability of being online."""
    high: Fraction
    """The most; not below `low`."""
    peak_s: NonNegative
    """The time of day of `high`."""
    spread_s: NonNegative
    """Standard deviation of the users' time zones."""
    slot_s: Positive
    """Drawn anew in each slot; at most half a `period_s`."""
    period_s: Positive = 86400.0
    """The length of a day."""

    @model_validator(mode="after")
    def is_a_curve(self) -> Diurnal:
        check_day(self.low, self.high, self.slot_s, self.period_s)
        return self

    def probability(self, at_s: float) -> float:
        """Return low + (high - low) (1 + cos(2 pi (t - peak) / period)) / 2 at a user's own time of day t."""
        return daily(self.low, self.high, at_s - self.peak_s, self.period_s)

    def times(self, users: int, streams: Streams) -> OnlineTimes:
        zones = streams.uniforms("availability", "time zone")

        def p_at(user: int, at_s: float) -> float:
            return self.probability(at_s - self.spread_s * STANDARD_NORMAL.inv_cdf(zones(user, 0)))

        at = _slots(streams, self.slot_s, p_at, steady=self.low == self.high)
        return OnlineTimes(np.full(users, self.high > 0), at)


class Trace(Availability):
    """Intervals online from a CSV file with the header `user,from_s,to_s`: one a line, in seconds.

    Users that are not in the file are never online, and after its last interval a user is offline for ever.
    A relative path is of the scenario file's folder; where there is no such file, of the working directory.
    """

    main_key = "file"
    kind: Literal["trace"] = "trace"
    file: Text
    """The CSV file's path."""

    def times(self, users: int, streams: Streams) -> OnlineTimes:
        intervals = read_intervals(self.file, users)

        def at(user: int, now: int) -> State:
            online = intervals.get(user, ())
            after = bisect_right(online, now, key=lambda interval: nanoseconds(interval[0]))
            if after and now < (end := nanoseconds(online[after - 1][1])):
                return True, end
            return False, nanoseconds(online[after][0]) if after < len(online) else FOR_EVER

        ever_online = np.zeros(users, bool)
        ever_online[list(intervals)] = True
        return OnlineTimes(ever_online, at)


_KINDS = (Always, Bernoulli, Sessions, Diurnal, Trace)
AVAILABILITY = Kinds("availability", Availability, _KINDS, "availability")  # type: ignore[type-abstract]

if TYPE_CHECKING:
    AnyAvailability = Availability
else:
    AnyAvailability = AVAILABILITY.annotation()


def _slots(streams: Streams, slot_s: float, p_at: Callable[[int, float], float], steady: bool) -> Days:
    """Return a coin in each slot. steady: p does not change with time, so 0 and 1 are for ever."""
    draws, slot_ns = streams.uniforms("availability", "user"), lasting(slot_s)

    def at(user: int, now: int) -> State:
        slot = now // slot_ns
        p = p_at(user, slot * slot_s)
        if steady and p in (0, 1):
            return p == 1, FOR_EVER
        return draws(user, slot) < p, (slot + 1) * slot_ns

    return at
