"""The participation matrix of a run: P^(t) = [p^(0), ..., p^(t-1)]^T in {0, 1}^{t x N} (Multi-RoundSecAgg,
eq. 4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Participation:
    """The rows of P, one a round, and each user's frequency of participation f^(t).

    users: N; they are 0 .. N - 1. ValueError if there are none.

    >>> P = Participation(4)
    >>> P.append([2, 0])
    >>> P.counts.tolist()
    [1, 0, 1, 0]
    """

    def __init__(self, users: int) -> None:
        if users < 1:
            raise ValueError(f"users={users} must be at least 1")
        self.users = users
        self.rows: list[NDArray[np.int64]] = []
        """Users of each round, in ascending order."""
        self._counts = np.zeros(users, np.int64)
        self.counts = self._counts.view()
        """f^(t), [users]: the rounds that each took part in so far; a read-only view that keeps up."""
        self.counts.flags.writeable = False

    def append(self, members: Iterable[int]) -> None:
        """Add the next round's users, in any order; nobody where the round was skipped.

        ValueError, and nothing appended, if a user is unknown or named twice.
        """
        row = np.sort(np.fromiter(members, np.int64))
        if row.size and not (row[0] >= 0 and row[-1] < self.users):
            wrong = row[0] if row[0] < 0 else row[-1]
            raise ValueError(f"round {len(self)}: user {wrong} is not one of 0..{self.users - 1}")
        doubled = row[:-1][row[1:] == row[:-1]]
        if doubled.size:
            raise ValueError(f"round {len(self)}: user {doubled[0]} takes part twice")
        self.rows.append(row)
        self._counts[row] += 1

    def __len__(self) -> int:
        return len(self.rows)

    def matrix(self) -> csr_array:
        """Return P^(t), [t, N], int8 zeros and ones."""
        from scipy.sparse import csr_array

        ends = np.cumsum([0, *(row.size for row in self.rows)])
        users = np.concatenate([*self.rows, np.empty(0, np.int64)])
        return csr_array((np.ones(users.size, np.int8), users, ends), shape=(len(self), self.users))
