"""Numbers of many users: the same whether they are found at once, in blocks, or one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.random_streams import Streams
from simfl.world import draws
from simfl.world.draws import BLOCK, MANY, LaterNumbers, alike, blocks, drawn, equal, first
from tests.sizes import examples

Draw = Callable[[np.random.Generator, int], "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"]
WAYS: list[Draw] = [
    lambda rng, size: rng.uniform(1, 2, size),
    lambda rng, size: rng.lognormal(0, 1, size),
    lambda rng, size: rng.exponential(3, size),
    lambda rng, size: rng.choice(np.array([0.2, 0.5, 0.9]), size),
]
USERS = 3 * MANY + 17


def stream() -> np.random.Generator:
    return Streams(3).rng("numbers")


@pytest.mark.parametrize("draw", WAYS)
def test_numbers_drawn_later_are_those_drawn_at_once(draw: Draw) -> None:
    numbers = drawn(USERS, stream(), draw)
    assert isinstance(numbers, LaterNumbers)
    at_once = draw(stream(), USERS)
    assert numbers.item(USERS - 1) == at_once[-1]
    assert (np.asarray(numbers) == at_once).all()
    assert (first(numbers) == at_once[: MANY // BLOCK * BLOCK]).all()


@settings(max_examples=examples(10), deadline=None)
@given(st.lists(st.integers(0, USERS - 1), max_size=20), st.sampled_from(WAYS))
def test_numbers_do_not_depend_on_the_order_of_looks(users: list[int], draw: Draw) -> None:
    numbers, others = drawn(USERS, stream(), draw), drawn(10 * USERS, stream(), draw)
    found = [numbers.item(user) for user in users]
    assert found == [others.item(user) for user in reversed(users)][::-1]
    assert found == [numbers[user] for user in users]


def test_few_users_have_an_array() -> None:
    numbers = drawn(MANY, stream(), WAYS[0])
    assert isinstance(numbers, np.ndarray)
    assert sum(part.size for part in blocks(numbers)) == MANY


def test_many_looks_end_in_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond one user in 32 the numbers are held as an array, and each still is what it was."""
    monkeypatch.setattr(draws, "MANY", 100)
    numbers, at_once = drawn(10_000, stream(), WAYS[1]), WAYS[1](stream(), 10_000)
    assert [numbers.item(user) for user in range(10_000)] == at_once.tolist()


def test_rows_of_several_draws() -> None:
    numbers = drawn(USERS, stream(), lambda rng, size: rng.random((size, 4)))
    assert (numbers[MANY + 1] == stream().random((USERS, 4))[MANY + 1]).all()


def test_equal_numbers_take_the_memory_of_one() -> None:
    assert equal(10**9, 2.5).item(10**9 - 1) == 2.5
    assert alike(equal(10**9, 2.5)).tolist() == [2.5]
