import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from simfl.learning.partition import dirichlet, iid
from simfl.streams import Streams

labels = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(lambda y: np.array(y, np.int64))


def dealt_once(parts: list[NDArray[np.int64]], n: int) -> bool:
    ascending = all((np.diff(part) > 0).all() and part.dtype == np.int64 for part in parts)
    return ascending and sorted(np.concatenate(parts).tolist()) == list(range(n))


@given(labels, st.integers(1, 100), st.integers(0, 2**32))
def test_iid_deals_every_sample_once_and_equally(y: NDArray[np.int64], users: int, seed: int) -> None:
    parts = iid(y, users, np.random.default_rng(seed))
    sizes = [len(part) for part in parts]
    assert len(parts) == users
    assert dealt_once(parts, len(y))
    assert max(sizes) - min(sizes) <= 1


@given(labels, st.data(), st.floats(1e-4, 1e4), st.integers(0, 2**32))
def test_dirichlet_deals_every_sample_once(
    y: NDArray[np.int64], data: st.DataObject, beta: float, seed: int
) -> None:
    min_samples = data.draw(st.integers(0, len(y)))
    users = data.draw(st.integers(1, len(y) // max(1, min_samples)))
    parts = dirichlet(y, users, beta, np.random.default_rng(seed), min_samples)
    assert len(parts) == users
    assert dealt_once(parts, len(y))
    assert min(len(part) for part in parts) >= min_samples


def test_beta_rules_how_mixed_the_users_are() -> None:
    y = np.repeat(np.arange(10), 100)

    def largest_class_share(beta: float) -> float:
        parts = dirichlet(y, 10, beta, np.random.default_rng(0), 10)
        return float(np.mean([np.bincount(y[part]).max() / len(part) for part in parts]))

    assert largest_class_share(0.05) > 0.6
    assert largest_class_share(1000) < 0.2


def test_partitions_are_golden() -> None:
    y = np.arange(20) % 4
    assert [part.tolist() for part in iid(y, 3, Streams(7).rng("partition"))] == [
        [0, 1, 2, 7, 10, 12, 19],
        [5, 6, 9, 13, 14, 16, 18],
        [3, 4, 8, 11, 15, 17],
    ]
    assert [part.tolist() for part in dirichlet(y, 3, 0.5, Streams(7).rng("partition"), 4)] == [
        [2, 6, 10, 18],
        [4, 15, 16, 19],
        [0, 1, 3, 5, 7, 8, 9, 11, 12, 13, 14, 17],
    ]


def test_errors_name_the_values() -> None:
    y, rng = np.zeros(10, np.int64), np.random.default_rng(0)
    with pytest.raises(ValueError, match="users=4 times min_samples=3 is above the 10 samples"):
        dirichlet(y, 4, 1.0, rng, 3)
    with pytest.raises(ValueError, match="users=0 must be at least 1"):
        iid(y, 0, rng)
    with pytest.raises(ValueError, match="users=0 must be at least 1"):
        dirichlet(y, 0, 1.0, rng)
    with pytest.raises(ValueError, match=r"beta=0.0 must be above 0"):
        dirichlet(y, 2, 0.0, rng)
