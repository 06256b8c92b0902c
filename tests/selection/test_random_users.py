import numpy as np
import pytest

from simfl.selection.history import Participation
from simfl.selection.random_users import random_users

NOBODY_YET = Participation(10)


def test_k_of_them() -> None:
    picked = random_users([9, 5, 7, 3], NOBODY_YET, 2, np.random.default_rng(1))
    assert picked is not None
    assert len(picked) == 2
    assert random_users([9, 5, 7, 3], NOBODY_YET, 4, np.random.default_rng(1)) == [3, 5, 7, 9]
    assert random_users([9, 5, 7, 3], NOBODY_YET, 5, np.random.default_rng(1)) is None


def test_every_pair_is_equally_likely() -> None:
    rng = np.random.default_rng(2)
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(6000):
        pair = tuple(random_users([0, 1, 2, 3], NOBODY_YET, 2, rng) or ())
        counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 6
    # 1000 expected, standard deviation 29.
    assert all(abs(count - 1000) < 150 for count in counts.values())


def test_needs_k() -> None:
    with pytest.raises(ValueError, match="needs k"):
        random_users([1, 2], NOBODY_YET, None, np.random.default_rng(0))
