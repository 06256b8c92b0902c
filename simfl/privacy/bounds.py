"""Bounds of the least support in a row space: the lightest vectors seen, and how light none can be.

`weak` says what is used and how sure it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.circuits import Budget, Circuits
from simfl.privacy.matrix import rounds
from simfl.privacy.modular import Residues, RowSpace, echelon
from simfl.privacy.strong import Classes

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Rows = Sequence[NDArray[np.int64]]
"""Each round's users."""


def light_vectors(P: csr_array, space: RowSpace) -> Iterator[tuple[bool, NDArray[np.bool_]]]:
    """Add the rounds of P to `space`; yield after each whether it grew, and the lightest support seen so far.

    The lightest among the rounds, their differences and the rows of the reduced echelon form; the last alone
    show every user that can be singled out. Supports are boolean, [users].
    """
    users_of, sizes, lightest = rounds(P), np.diff(P.indptr), np.ones(P.shape[1], bool)
    for t, members in enumerate(users_of):
        row = np.bincount(members, minlength=P.shape[1])
        grew, supports = space.append(members), []
        if grew:
            supports += [row != 0, space.rows[(space.rows != 0).sum(axis=1).argmin()] != 0]
        if t:  # of a round that comes again this is nothing: its other differences were seen before
            differences = sizes[:t] + sizes[t] - 2 * (P[:t] @ row)
            row[users_of[differences.argmin()]] -= 1
            supports.append(row != 0)
        lightest = min([lightest, *(s for s in supports if s.any())], key=np.count_nonzero)
        yield grew, lightest


class Search:
    """Bounds of the lightest vector of the row space of `basis`, independent rounds.

    `inside`, [users]: the support of the lightest one known; `lower`: no vector is lighter.
    """

    def __init__(self, basis: Rows, inside: NDArray[np.bool_], lower: int, p: int) -> None:
        self.inside, self.lower, self.p = inside, lower, p
        classes, self.space = Classes(inside.size), RowSpace(inside.size, p)
        for members in basis:
            classes.append(members)
            self.space.append(members)
        self._labels = classes.labels
        names, first, sizes = np.unique(self._labels, return_index=True, return_counts=True)
        took_part = names > 0
        self._names, self.weights = names[took_part], sizes[took_part]
        self.Q: Residues = self.space.rows[:, first[took_part]]

    @property
    def upper(self) -> int:
        """The weight of the lightest vector known."""
        return int(self.inside.sum())

    def circuits(self, budget: Budget) -> None:
        """Look for the lightest circuit of the kernel's columns."""
        if self.lower >= self.upper:
            return
        pivots = np.searchsorted(self._names, self._labels[self.space.pivots])
        free = np.delete(np.arange(len(self._names)), pivots)
        vectors = np.zeros((len(self._names), free.size), np.int64)
        vectors[pivots] = self.Q[:, free]  # the kernel has the negatives, of the same circuits
        vectors[free] = np.eye(free.size, dtype=np.int64)
        found = Circuits(vectors, self.weights, self.p, np.random.Generator(np.random.Philox(self.p)))
        found.weight, found.lower = min(found.weight, self.upper), max(found.lower, self.lower)
        found.search(budget)
        self._know(np.array(found.best, np.int64))
        self.lower = max(self.lower, found.lower)

    def disjoint_sets(self, budget: Budget) -> None:
        """Count non-zeros in disjoint information sets, the heaviest classes first."""
        r, n = self.Q.shape
        left, used, bound = np.argsort(-self.weights, kind="stable"), np.empty(0, np.int64), 0
        while self.lower < self.upper and left.size and budget.take(r * r * n / 20):
            R, pivots = echelon(self.Q, self.p, np.concatenate([left, used]))
            self._know(np.flatnonzero(R[((R != 0) @ self.weights).argmin()]))
            among = np.isin(left, pivots)
            # A vector that is no multiple of a row has two non-zeros in a whole set, fewer in one that lacks
            # pivots; the lightest classes bound their weight.
            counted = 2 - (r - np.count_nonzero(among))
            if counted < 1:
                break
            bound += int(np.sort(self.weights[left[among]])[:counted].sum())
            self.lower = max(self.lower, min(self.upper, bound))
            left, used = left[~among], np.concatenate([used, left[among]])

    def _know(self, classes: NDArray[np.int64]) -> None:
        """Keep the support of these classes if it is lighter than the one known."""
        inside = np.isin(self._labels, self._names[classes])
        if 0 < inside.sum() < self.upper:
            self.inside = inside
