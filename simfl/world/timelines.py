"""Piecewise-constant states over virtual time, a sequence per key (a user or an outage's group).

Invariant: a state depends on key and time only, not on earlier queries. States are generated up to the latest
query, so a key without queries costs nothing. A last state ends at `FOR_EVER`.
"""

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

from simfl.config.blocks import Distribution
from simfl.virtual_time import NS, lasting

FOR_EVER = 2**80  # nanoseconds, later than any run lasts

V = TypeVar("V")
Timeline = Callable[[int, int], tuple[V, int]]
"""(whose, now in nanoseconds) -> its state, and until when (nanoseconds) that surely stays."""


def timeline_from(states: Callable[[int], Iterator[tuple[float, V]]], nothing: V) -> Timeline[V]:
    """Return states of (seconds, value) that follow one another, the last of which stays; `nothing` where
    there are none. They are read again where somebody looks back."""
    latest: dict[int, tuple[Iterator[tuple[float, V]], V, int, int]] = {}

    def at(whose: int, now: int) -> tuple[V, int]:
        ahead, value, begin, end = latest.get(whose, (iter(()), nothing, FOR_EVER, FOR_EVER))
        if now < begin:
            ahead, value, begin, end = states(whose), nothing, 0, 0
        while now >= end:
            begin, (seconds, value) = end, next(ahead, (math.inf, value))
            end = FOR_EVER if seconds >= FOR_EVER / NS else end + lasting(seconds)
        latest[whose] = ahead, value, begin, end
        return value, end

    return at


def alternating(
    draws: Iterator[float], on_s: Distribution, off_s: Distribution
) -> Iterator[tuple[float, bool]]:
    """Yield on and off times in turn by uniform draws; the first is on with the share of time that on has."""
    mean_on, mean_off = on_s.average(), off_s.average()
    on = next(draws) < mean_on / (mean_on + mean_off)
    for u in draws:
        yield (on_s if on else off_s).quantile(u), on
        on = not on


def daily(low: float, high: float, at_s: float, period_s: float) -> float:
    """Return low + (high - low) (1 + cos(2 pi t / period)) / 2 at a time t after the peak of a day.

    >>> [daily(0.2, 1.0, hour * 3600, 86400) for hour in (0, 12, 24)]
    [1.0, 0.2, 1.0]
    """
    return low + (high - low) * (1 + math.cos(2 * math.pi * at_s / period_s)) / 2


def check_day(low: float, high: float, slot_s: float, period_s: float) -> None:
    """Refuse a daily curve that would not be one, with a ValueError."""
    if low > high:
        raise ValueError(f"low={low:g} must not be above high={high:g}")
    if slot_s > period_s / 2:
        half = f"half of period_s={period_s:g}"
        raise ValueError(f"slot_s={slot_s:g} must not be above {half}: it would not show the curve")
