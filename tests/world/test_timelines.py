"""Successive states against a list of all of them; the same for queries in any order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.config.blocks import Distribution, Exponential, Fixed, LogNormal, Pareto, Quantiles, Uniform, Zipf
from simfl.random_streams import Streams
from simfl.world.timelines import FOR_EVER, alternating, timeline_from

NS = 10**9


@given(st.lists(st.integers(1, 5), max_size=8), st.lists(st.integers(0, 40), max_size=12))
def test_a_state_is_a_function_of_the_time(lengths: list[int], questions: list[int]) -> None:
    def states(whose: int) -> Iterator[tuple[float, int]]:
        yield from ((float(length), place) for place, length in enumerate(lengths))

    at = timeline_from(states, -1)
    for now in questions:
        ends = [sum(lengths[: place + 1]) for place in range(len(lengths))]
        place = next((place for place, end in enumerate(ends) if now < end), len(lengths))
        until = ends[place] * NS if place < len(lengths) else FOR_EVER
        assert at(7, now * NS) == (min(place, len(lengths) - 1), until)


@pytest.mark.parametrize("seconds", [math.inf, 1e300, 2.0**80 / NS])
def test_a_state_longer_than_any_run_is_for_ever(seconds: float) -> None:
    at = timeline_from(lambda whose: iter([(2.0, "first"), (seconds, "last"), (1.0, "never")]), "")
    assert at(0, 0) == ("first", 2 * NS)
    assert at(0, 3 * NS) == ("last", FOR_EVER)


def test_each_has_its_own_states() -> None:
    at = timeline_from(lambda whose: iter([(float(whose + 1), whose)] * 3), -1)
    assert [at(whose, NS // 2) for whose in range(3)] == [(0, NS), (1, 2 * NS), (2, 3 * NS)]


TIMES: list[Distribution] = [
    Fixed(value=3.0),
    Exponential(mean=3.0),
    Uniform(low=1.0, high=5.0),
    LogNormal(median=2.0, sigma=0.9),
    Pareto(least=1.0, alpha=1.5),
    Zipf(s=1.2, ranks=8, unit=0.5),
    Quantiles(points=((0, 1.0), (0.5, 2.0), (0.9, 2.0), (1, 20.0))),
]


@pytest.mark.parametrize("on_s", TIMES, ids=lambda spec: spec.kind)
def test_alternating_times_keep_their_share(on_s: Distribution) -> None:
    """The share of 4,000 users that are on is stationary from 0 s to 7.3 s, for any distribution."""
    draws, off_s = Streams(1).uniforms("on and off"), Fixed(value=1.0)
    at = timeline_from(lambda user: alternating(draws.since(user, 0), on_s, off_s), False)
    share = on_s.average() / (on_s.average() + 1)
    for now_s in (0.0, 0.4, 1.5, 3.5, 7.3):
        count = sum(at(user, round(now_s * NS))[0] for user in range(4000))
        assert abs(count - 4000 * share) <= 5 * math.sqrt(4000 * share * (1 - share)), now_s


def test_fixed_times_begin_with_their_rest() -> None:
    draws = Streams(1).uniforms("on and off")
    rests = []
    for user in range(2000):
        states = alternating(draws.since(user, 0), Exponential(mean=3.0), Fixed(value=1.0))
        first, second, third, fourth = islice(states, 4)
        assert first[1] == third[1] != second[1] == fourth[1]
        assert [seconds for seconds, on in (second, third, fourth) if not on] in ([1.0], [1.0, 1.0])
        rests += [] if first[1] else [first[0]]
    assert 0 <= min(rests) < 0.02 < 0.98 < max(rests) <= 1
    # Uniform in [0, 1]: the mean of n has a standard deviation of 1 / sqrt(12 n).
    assert abs(sum(rests) / len(rests) - 0.5) <= 5 / math.sqrt(12 * len(rests))


def test_exponential_times_begin_with_a_whole_draw() -> None:
    draws = Streams(1).uniforms("on and off")
    spec = Exponential(mean=3.0)
    for user in range(20):
        first, second = islice(alternating(draws.since(user, 0), spec, spec), 2)
        assert (first[0], second[0]) == (spec.quantile(draws(user, 1)), spec.quantile(draws(user, 2)))
