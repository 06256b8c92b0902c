"""The participation matrix P as the functions of this package take it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # a tenth of a second to import, in every run
    from scipy.sparse import csr_array

Matrix: TypeAlias = Union[NDArray[Any], "csr_array"]
"""P, [t, N], zeros and ones: a round a row, a user a column; dense or sparse."""


def sparse(P: Matrix) -> csr_array:
    """Return P as int8 rows with ascending users and no stored zeros; ValueError unless it is a P."""
    from scipy.sparse import csr_array, issparse

    if np.ndim(P) != 2 and not issparse(P):
        raise ValueError(f"a participation matrix is [rounds, users], not of shape {np.shape(P)}")
    matrix = csr_array(P, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not (matrix.data == 1).all():
        odd = matrix.data[matrix.data != 1][0]
        raise ValueError(f"a participation matrix holds zeros and ones, not {odd}")
    return matrix.astype(np.int8)


def rounds(P: Matrix) -> list[NDArray[np.int64]]:
    """Return each round's users, ascending.

    >>> rounds(np.array([[1, 0, 1], [0, 1, 0]]))
    [array([0, 2]), array([1])]
    """
    matrix = sparse(P)
    parts = np.split(matrix.indices.astype(np.int64), matrix.indptr[1:-1])
    return parts[: matrix.shape[0]]  # of no rounds at all, the split makes one part
