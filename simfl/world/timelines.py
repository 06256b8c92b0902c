"""Piecewise-constant states over virtual time, a sequence per key (a user or an outage's group).

Invariant: a state depends on key and time only, not on earlier queries. States are generated up to the latest
query, so a key without queries costs nothing. A last state ends at `FOR_EVER`.

Per key, one iterator and its latest state are held, and no list of earlier states: the engine asks in the
order of time. An earlier time is answered by a new iterator (`tests/world/test_timelines.py`).
"""

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

from simfl.config.blocks import Distribution
from simfl.virtual_time import NS, lasting

FOR_EVER = 2**80
"""Nanoseconds; later than the end of any run. Beyond int64, so times are Python's integers."""

V = TypeVar("V")
Timeline = Callable[[int, int], tuple[V, int]]
"""(key, now in nanoseconds) -> the key's state, and the nanosecond up to which it is guaranteed to stay."""


def timeline_from(states: Callable[[int], Iterator[tuple[float, V]]], default: V) -> Timeline[V]:
    """Return a timeline of successive states, the last of which stays.

    Args:
        states: Returns a key's states from the start of the run on, as (seconds that it lasts, value).
        default: The value of a key without states.
    """
    # Per key: its iterator, and the value, begin and end of the state that was read last.
    latest: dict[int, tuple[Iterator[tuple[float, V]], V, int, int]] = {}

    def at(key: int, now: int) -> tuple[V, int]:
        following, value, begin, end = latest.get(key, (iter(()), default, FOR_EVER, FOR_EVER))
        # An iterator cannot go back: for an earlier time it is started again, which gives the same states.
        if now < begin:
            following, value, begin, end = states(key), default, 0, 0
        while now >= end:
            # A finished iterator stands for its last value, for ever.
            begin, (seconds, value) = end, next(following, (math.inf, value))
            # `lasting` is at least a nanosecond, so the loop ends; infinite seconds have no integer.
            end = FOR_EVER if seconds >= FOR_EVER / NS else end + lasting(seconds)
        latest[key] = following, value, begin, end
        return value, end

    return at


def alternating(
    draws: Iterator[float], on_s: Distribution, off_s: Distribution
) -> Iterator[tuple[float, bool]]:
    """Yield on and off times in turn, as (seconds, True if on).

    The first state is on with probability mean(on) / (mean(on) + mean(off)), the share of time that is on.

    Args:
        draws: Uniform draws in [0, 1).
        on_s: Distribution of the seconds of an on time.
        off_s: Distribution of the seconds of an off time.
    """
    # The first state is drawn by its share of time, and lasts a whole time of its own. So the share that is
    # on is constant from the start for exponential times alone, and varies with time for others.
    mean_on, mean_off = on_s.average(), off_s.average()
    on = next(draws) < mean_on / (mean_on + mean_off)
    for u in draws:
        yield (on_s if on else off_s).quantile(u), on
        on = not on


def daily(low: float, high: float, at_s: float, period_s: float) -> float:
    """Return low + (high - low) (1 + cos(2 pi t / period)) / 2 at t = `at_s` seconds after the peak of a day.

    >>> [daily(0.2, 1.0, hour * 3600, 86400) for hour in (0, 12, 24)]
    [1.0, 0.2, 1.0]
    """
    return low + (high - low) * (1 + math.cos(2 * math.pi * at_s / period_s)) / 2


def check_day(low: float, high: float, slot_s: float, period_s: float) -> None:
    """Check the settings of a daily curve.

    Raises:
        ValueError: `low` is above `high`, or a slot is longer than half a period.
    """
    if low > high:
        raise ValueError(f"low={low:g} must not be above high={high:g}")
    if slot_s > period_s / 2:
        half = f"half of period_s={period_s:g}"
        raise ValueError(f"slot_s={slot_s:g} must not be above {half}: it would not show the curve")
