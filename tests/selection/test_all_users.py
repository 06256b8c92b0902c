import numpy as np

from simfl.selection.all_users import all_users
from simfl.selection.history import Participation

RNG = np.random.default_rng(0)
NOBODY_YET = Participation(5)


def test_everyone_who_is_available() -> None:
    assert all_users([4, 1, 2], NOBODY_YET, None, RNG) == [1, 2, 4]
    assert all_users([4, 1, 2], NOBODY_YET, 3, RNG) == [1, 2, 4]
    chosen = all_users(np.array([4, 1, 2]), NOBODY_YET, 3, RNG)
    assert chosen == [1, 2, 4]
    assert all(type(user) is int for user in chosen or ())


def test_too_few_skip_the_round() -> None:
    assert all_users([], NOBODY_YET, None, RNG) is None
    assert all_users([4, 1, 2], NOBODY_YET, 4, RNG) is None
