"""P in its many shapes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from simfl.runs.multi_round_privacy.metrics import rounds, sparse
from simfl.world.participation import Participation


def test_dense_sparse_and_the_history_agree() -> None:
    history = Participation(4)
    for members in ([2, 0], [], [3, 1, 2]):
        history.append(members)
    plain = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 1]])
    for P in (history.matrix(), plain, plain.astype(bool), plain.astype(float), csr_array(plain)):
        assert [members.tolist() for members in rounds(P)] == [[0, 2], [], [1, 2, 3]]
        assert (sparse(P).toarray() == plain).all()


def test_no_rounds_yet() -> None:
    assert rounds(Participation(3).matrix()) == []
    assert sparse(Participation(3).matrix()).shape == (0, 3)


def test_stored_zeros_and_disorder_do_not_matter() -> None:
    P = csr_array((np.array([1, 0, 1]), np.array([2, 1, 0]), np.array([0, 3])), shape=(1, 3))
    assert rounds(P)[0].tolist() == [0, 2]
    assert P.nnz == 3


@pytest.mark.parametrize("bad", [[[0, 2]], [[-1, 1]], [[0.5, 1]]])
def test_only_zeros_and_ones(bad: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="zeros and ones, not"):
        sparse(np.array(bad))
    with pytest.raises(ValueError, match="not of shape"):
        sparse(np.array([0, 1]))
