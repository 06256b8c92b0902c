"""The strong multi-round privacy guarantee T of a participation matrix (eq. 5).

Equation 5 asks that every non-zero X^T P^T z be a sum of a_i times the sum of a set S_i of at least T users,
for different non-zero a_i: that is, with v = P^T z grouped by equal non-zero value, every group has at least
T users. The largest such T is the smallest number of identical non-zero columns of P:

- Users whose columns are identical have the same v_i under every z, and a user whose column is zero has
  v_i = 0. So each group is a union of whole classes of identical non-zero columns, and never smaller than
  the smallest class.
- Of z, those under which two distinct columns agree, or under which a non-zero one gives 0, are finitely many
  proper subspaces; any other z (a random one, almost surely) has exactly the classes as its groups. So the
  smallest class is a group.

Appendix C of the paper argues so too. T never rises from round to round: classes only split.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.matrix import Matrix, rounds, sparse


class Classes:
    """The classes of identical columns of a participation matrix that grows by rows.

    `labels`, [users]: equal for users with identical columns; 0 for those that never took part.
    """

    def __init__(self, users: int) -> None:
        self.labels = np.zeros(users, np.int64)
        self._sizes = np.zeros(users + 1, np.int64)
        self._sizes[0] = users
        self._classes = 1
        self.smallest: int | None = None

    def append(self, members: NDArray[np.int64]) -> None:
        """Add the round of `members`, distinct users, in time O(|members| log |members|)."""
        labels = self.labels[members]
        touched, group, taken = np.unique(labels, return_inverse=True, return_counts=True)
        split = (taken < self._sizes[touched]) | (touched == 0)
        if not split.any():
            return
        fresh = touched.copy()
        fresh[split] = np.arange(self._classes, self._classes + np.count_nonzero(split))
        self._classes += int(np.count_nonzero(split))
        self._sizes[touched[split]] -= taken[split]
        self._sizes[fresh[split]] = taken[split]
        self.labels[members] = fresh[group]
        changed = np.concatenate([touched[split & (touched > 0)], fresh[split]])
        least = int(self._sizes[changed].min())
        self.smallest = least if self.smallest is None else min(self.smallest, least)


def strong_over_time(P: Matrix) -> list[int | None]:
    """Return the strong T after each round of P, [t, N]; None as long as nobody has taken part.

    >>> strong_over_time(np.array([[1, 1, 1, 0], [1, 0, 0, 1]]))
    [3, 1]
    """
    classes, over_time = Classes(sparse(P).shape[1]), []
    for members in rounds(P):
        classes.append(members)
        over_time.append(classes.smallest)
    return over_time
