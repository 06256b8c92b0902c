"""The choice of k coordinates against a sorted list, and the way back."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.crypto import index_set
from simfl.crypto.prg import expand
from tests.sizes import examples


def seed(name: object) -> np.ndarray:
    return np.frombuffer(hashlib.sha256(repr(name).encode()).digest(), np.uint8).reshape(1, 32)


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(st.integers(1, 5000).flatmap(lambda d: st.tuples(st.just(d), st.integers(1, d))), st.integers(0, 99))
def test_chosen_coordinates_are_of_the_smallest_words(sizes: tuple[int, int], number: int) -> None:
    d, k = sizes
    words = expand(seed(number), d, 2**32 - 5)[0].tolist()
    expected = sorted(sorted(range(d), key=lambda i: (words[i], i))[:k])
    assert index_set.indices(seed(number), d, k).tolist() == expected


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(st.integers(1, 300).flatmap(lambda d: st.tuples(st.just(d), st.integers(1, d))), st.integers(0, 99))
def test_scatter_puts_selected_coordinates_back(sizes: tuple[int, int], number: int) -> None:
    d, k = sizes
    x = np.random.default_rng(number).uniform(1, 2, (1, d)).astype(np.float32)
    selected = index_set.select(x, seed(number), k)
    assert selected.shape == (1, k)
    assert selected.dtype == np.float32
    back = index_set.scatter(selected.astype(np.float64), seed(number), d)
    assert np.count_nonzero(back) == k
    assert np.array_equal(back[back != 0], x[back != 0].astype(np.float64))
    assert np.array_equal(index_set.select(back, seed(number), k), selected)


@pytest.mark.parametrize("k", range(1, 7))
def test_equal_words_are_taken_in_order(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words 5 5 1 5 9 5: the smallest, then those of 5 from the left."""
    words = np.array([[5, 5, 1, 5, 9, 5]], np.uint32)
    monkeypatch.setattr(index_set, "expand", lambda seed, d, q: words)
    assert index_set.indices(seed(0), 6, k).tolist() == sorted([2, 0, 1, 3, 5, 4][:k])


def test_each_coordinate_is_chosen_alike_often() -> None:
    """A quarter of 40 coordinates in 2,000 rounds: 500 times each, within five deviations of 19.4."""
    times = np.zeros(40)
    for number in range(2000):
        times[index_set.indices(seed(number), 40, 10)] += 1
    assert np.abs(times - 500).max() < 5 * 19.4
