import numpy as np

from simfl.selection.all_users import all_users

RNG = np.random.default_rng(0)


def test_everyone_who_is_available() -> None:
    assert all_users([4, 1, 2], [], None, RNG) == [1, 2, 4]
    assert all_users([4, 1, 2], [frozenset({4})], 3, RNG) == [1, 2, 4]


def test_too_few_skip_the_round() -> None:
    assert all_users([], [], None, RNG) is None
    assert all_users([4, 1, 2], [], 4, RNG) is None
