"""Participation: the users of each round so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Users = NDArray[np.int64]


def doubled(ascending: Users) -> Users:
    """Return the users who occur twice in an ascending array."""
    repeated: Users = ascending[1:][np.diff(ascending) == 0]
    return repeated


class Participation:
    """The rows of P^(t) = [p^(0), ..., p^(t-1)]^T in {0, 1}^{t x N} (Multi-RoundSecAgg, eq. 4), one a round.

    Args:
        users: N, at least 1; users are 0 .. N - 1.

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
        """Each round's users, ascending."""
        self.battery: NDArray[np.float64] | None = None
        """Present levels of the users' batteries, fractions [N]; 1 for a device without a battery. None if no
        device has one."""
        # A view that callers cannot write to, and that needs no copy in each round.
        self._counts = np.zeros(users, np.int64)
        self.counts = self._counts.view()
        """f^(t), int64 [N]: the number of rounds of each user; a read-only view that follows `append`."""
        self.counts.flags.writeable = False

    def append(self, members: Iterable[int]) -> None:
        """Add the next round's users.

        Args:
            members: Users in any order; empty if the round was skipped.

        Raises:
            ValueError: A user is not one of the N, or is named twice; the round is not added.
        """
        # Every check comes before the first change, so that a refused round leaves nothing behind.
        row = np.sort(np.fromiter(members, np.int64))
        # Ascending: the first and the last are the only ones to look at.
        if row.size and not (row[0] >= 0 and row[-1] < self.users):
            wrong = row[0] if row[0] < 0 else row[-1]
            raise ValueError(f"round {len(self)}: user {wrong} is not one of 0..{self.users - 1}")
        if (twice := doubled(row)).size:
            raise ValueError(f"round {len(self)}: user {twice[0]} takes part twice")
        self.rows.append(row)
        # Indices that occur twice would be counted once: the check above excludes them.
        self._counts[row] += 1

    def __len__(self) -> int:
        return len(self.rows)

    def matrix(self) -> csr_array:
        """Return P^(t), [t, N], int8 zeros and ones."""
        # Imported here: only a run's end needs the matrix, and scipy takes time to import.
        from scipy.sparse import csr_array

        ends = np.cumsum([0, *(row.size for row in self.rows)])
        # The empty array is for t = 0, as nothing cannot be concatenated.
        users = np.concatenate([*self.rows, np.empty(0, np.int64)])
        return csr_array((np.ones(users.size, np.int8), users, ends), shape=(len(self), self.users))
