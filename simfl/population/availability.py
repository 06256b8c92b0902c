"""When users are online. The same for every protocol.

A user's days are a function of the seed, its number and the time: they do not depend on how many users there
are, on what became of it before, nor on who asks. So they are read when somebody looks at the user, and a
million users at whom nobody looks cost nothing. A state that never changes again says so, so that a run in
which nothing is left to happen can be told from one that waits.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simfl.blocks import Distribution, Fraction, NonNegative, Positive, Text
from simfl.errors import RunFailed
from simfl.kinds import Choice, Kinds
from simfl.population.distributions import STANDARD_NORMAL, mean_of, quantile
from simfl.population.intervals import read_intervals
from simfl.random_streams import Streams
from simfl.virtual_time import lasting, nanoseconds

FOR_EVER = 2**80
"""Later than any run lasts, in nanoseconds."""

State = tuple[bool, int]
"""Whether a user is online, and until when (nanoseconds) it surely stays so."""

Days = Callable[[int, int], State]
"""The state of a user at a time."""


def _online(user: int, now: int) -> State:
    return True, FOR_EVER


@dataclass(frozen=True)
class OnlineTimes:
    """When the users of one world are online.

    at: a user's state at a time. by_round: boolean [N], who is online in a synchronous round, where that is
    drawn anew for each. ever_online: the users who are online at all, sooner or later.
    """

    ever_online: int
    at: Days = _online
    by_round: Callable[[int], NDArray[np.bool_]] | None = None


class Availability(Choice):
    """A model of when users are online. One of your own is most simply a `UserStates`."""

    @abstractmethod
    def times(self, users: int, streams: Streams) -> OnlineTimes:
        """Return when so many users are online. A user's draws must not depend on how many there are."""

    @property
    def changes(self) -> Literal["never", "by round", "with time"]:
        """When a user may come or go."""
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
        """Yield (seconds that a state lasts, whether the user is online then), one after the other.

        The last state stays; a user without states is never online. rng: the user's own stream.
        """

    def times(self, users: int, streams: Streams) -> OnlineTimes:
        return OnlineTimes(users, _Followed(self, streams).at)


class _Followed:
    """Users' states read as far as somebody looked, and from the start again where somebody looks back."""

    def __init__(self, model: UserStates, streams: Streams) -> None:
        self.model = model
        self.streams = streams
        self.latest: dict[int, tuple[Iterator[tuple[float, bool]], bool, int, int]] = {}

    def at(self, user: int, now: int) -> State:
        states, online, begin, end = self.latest.get(user, (iter(()), False, FOR_EVER, FOR_EVER))
        if now < begin:
            rng = self.streams.rng("availability", "states", user)
            states, online, begin, end = iter(self.model.states(user, rng)), False, 0, 0
        while now >= end:
            begin, (seconds, online) = end, next(states, (math.inf, online))
            if not seconds > 0:
                whose = f"availability {type(self.model).__name__}, user {user}"
                raise RunFailed(f"{whose}: a state lasts {seconds} s: it must be above 0")
            end = FOR_EVER if seconds == math.inf else end + lasting(seconds)
        self.latest[user] = states, online, begin, end
        return online, end


class Always(Availability):
    """Every user is online all the time."""

    kind: Literal["always"] = "always"

    @property
    def changes(self) -> Literal["never"]:
        return "never"

    def times(self, users: int, streams: Streams) -> OnlineTimes:
        return OnlineTimes(users)


class Bernoulli(Availability):
    """Each user is online with probability p, anew in each round, or in each slot of `slot_s` seconds.

    `p` is one probability or a list from which each user draws its own (Multi-RoundSecAgg section 6).
    """

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
        ever_online = int((p > 0).sum())
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
    """How long a user stays online."""
    off_s: Distribution
    """How long it stays away."""

    def times(self, users: int, streams: Streams) -> OnlineTimes:
        """Return sessions one after the other. Of a user's draws the first says how it starts, the k-th after
        it how long its k-th session lasts."""
        draws = streams.uniforms("availability", "user")
        mean_on, mean_off = mean_of(self.on_s), mean_of(self.off_s)
        begins_online = mean_on / (mean_on + mean_off)
        latest: dict[int, tuple[int, bool, int, int]] = {}  # the session in which a user was last looked at

        def at(user: int, now: int) -> State:
            number, online, begin, end = latest.get(user, (0, False, 0, 0))
            if now < begin or not number:
                number, online, begin, end = 0, draws(user, 0) >= begins_online, 0, 0
            if now >= end:
                for u in draws.since(user, number + 1):
                    number, online, begin = number + 1, not online, end
                    end += lasting(quantile(self.on_s if online else self.off_s, u))
                    if now < end:
                        break
                latest[user] = number, online, begin, end
            return online, end

        return OnlineTimes(users, at)


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
        if self.low > self.high:
            raise ValueError(f"low={self.low:g} must not be above high={self.high:g}")
        if self.slot_s > self.period_s / 2:
            half = f"half of period_s={self.period_s:g}"
            raise ValueError(f"slot_s={self.slot_s:g} must not be above {half}: it would not show the curve")
        return self

    def probability(self, at_s: float) -> float:
        """Return low + (high - low) (1 + cos(2 pi (t - peak) / period)) / 2 at a user's own time of day t."""
        turn = 2 * math.pi * (at_s - self.peak_s) / self.period_s
        return self.low + (self.high - self.low) * (1 + math.cos(turn)) / 2

    def times(self, users: int, streams: Streams) -> OnlineTimes:
        zones = streams.uniforms("availability", "time zone")

        def p_at(user: int, at_s: float) -> float:
            return self.probability(at_s - self.spread_s * STANDARD_NORMAL.inv_cdf(zones(user, 0)))

        at = _slots(streams, self.slot_s, p_at, steady=self.low == self.high)
        return OnlineTimes(users if self.high > 0 else 0, at)


class Trace(Availability):
    """When users are online, from a CSV file with the header `user,from_s,to_s`: an interval a line, seconds.

    Users that are not in the file are never online, and after its last interval a user is offline for ever.
    A relative path is of the scenario file's folder; where there is no such file, of the working directory.
    """

    main_key = "file"
    kind: Literal["trace"] = "trace"
    file: Text
    """The CSV file's path."""

    def times(self, users: int, streams: Streams) -> OnlineTimes:
        """Return what the file says; an interval that rounds to nothing is none."""
        intervals = read_intervals(self.file, users)

        def at(user: int, now: int) -> State:
            mine = intervals.get(user, ())
            after = bisect_right(mine, now, key=lambda interval: nanoseconds(interval[0]))
            if after and now < (end := nanoseconds(mine[after - 1][1])):
                return True, end
            return False, nanoseconds(mine[after][0]) if after < len(mine) else FOR_EVER

        return OnlineTimes(len(intervals), at)


AVAILABILITY = Kinds(
    "availability",
    Availability,  # type: ignore[type-abstract]
    (Always, Bernoulli, Sessions, Diurnal, Trace),
    "availability",
)

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
