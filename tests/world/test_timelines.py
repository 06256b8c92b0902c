"""Successive states against a list of all of them; the same for queries in any order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.config.blocks import Exponential, Fixed
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


def test_alternating_times_start_by_their_share() -> None:
    draws = Streams(1).uniforms("on and off")
    starts = []
    for user in range(2000):
        first, second, third = islice(
            alternating(draws.since(user, 0), Exponential(mean=3.0), Fixed(value=1.0)), 3
        )
        assert first[1] == third[1] != second[1]
        assert all(seconds == 1.0 for seconds, on in (first, second, third) if not on)
        starts.append(first[1])
    assert abs(sum(starts) - 1500) <= 5 * math.sqrt(2000 * 0.75 * 0.25)
