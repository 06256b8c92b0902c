"""Bounds of the least support in a row space: the lightest vectors seen, and how light none can be.

`weak` says what is used and how sure it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.circuits import Budget, Circuits
from simfl.privacy.modular import Residues, RowSpace, echelon
from simfl.privacy.strong import Classes

Rows = Sequence[NDArray[np.int64]]
"""Each round's users."""


class Growing:
    """A row space round by round, and the lightest vector seen in it without any search.

    `inside`, [users]: that vector's support. It is the lightest among the rounds, their differences and the
    rows of the reduced echelon form; the last alone show every user that can be singled out.
    """

    def __init__(self, users: int, p: int) -> None:
        self.space = RowSpace(users, p)
        self.inside = np.ones(users, bool)
        self._past = np.empty((0, users), np.float32)
        self._sizes = np.empty(0, np.float32)
        self._rounds = 0

    def append(self, members: NDArray[np.int64]) -> bool:
        """Adds a round; whether the row space grew."""
        row = np.zeros(self.inside.size, np.float32)
        row[members] = 1
        grew = self.space.append(members)
        if grew:
            self._know(row != 0)
            self._know(self.space.rows[(self.space.rows != 0).sum(axis=1).argmin()] != 0)
        past = self._past[: self._rounds]
        differences = self._sizes[: self._rounds] + members.size - 2 * (past @ row)
        if differences.size:  # none where a round comes again: all of its differences were seen before
            self._know(past[differences.argmin()] != row)
        self._keep(row)
        return grew

    def _keep(self, row: NDArray[np.float32]) -> None:
        if self._rounds == len(self._past):
            room = max(8, self._rounds)
            self._past = np.concatenate([self._past, np.empty((room, row.size), np.float32)])
            self._sizes = np.concatenate([self._sizes, np.empty(room, np.float32)])
        self._past[self._rounds] = row
        self._sizes[self._rounds] = row.sum()
        self._rounds += 1

    def _know(self, inside: NDArray[np.bool_]) -> None:
        if 0 < inside.sum() < self.inside.sum():
            self.inside = inside


class Search:
    """Bounds of the lightest vector of the row space of `basis`, independent rounds.

    `inside`, [users], is the support of the lightest one known, `lower` a bound.
    """

    def __init__(self, basis: Rows, users: int, p: int) -> None:
        classes, space = Classes(users), RowSpace(users, p)
        for members in basis:
            classes.append(members)
            space.append(members)
        assert classes.smallest is not None
        self.p, self.lower = p, classes.smallest
        self._labels = classes.labels
        self._names, first, sizes = np.unique(classes.labels, return_index=True, return_counts=True)
        took_part = self._names > 0
        self._names, self.weights = self._names[took_part], sizes[took_part]
        self.Q: Residues = space.rows[:, first[took_part]]
        self._rng = np.random.Generator(np.random.Philox(p))
        self.upper = users + 1
        self.inside = np.ones(users, bool)
        pivots = np.searchsorted(self._names, classes.labels[space.pivots])
        free = np.delete(np.arange(len(self._names)), pivots)
        vectors = np.zeros((len(self._names), free.size), np.int64)
        vectors[pivots] = self.Q[:, free]  # the kernel has the negatives, of the same circuits
        vectors[free] = np.eye(free.size, dtype=np.int64)
        self._circuits = Circuits(vectors, self.weights, p, self._rng)

    @property
    def done(self) -> bool:
        return self.lower >= self.upper

    def know(self, inside: NDArray[np.bool_]) -> None:
        """A support that is already known, [users]."""
        weight = int(inside.sum())
        if weight < self.upper:
            self.upper, self.inside = weight, inside
            self._circuits.weight = min(self._circuits.weight, weight)

    def circuits(self, budget: Budget) -> None:
        """Goes on with larger circuits."""
        if self.done:
            return
        self._circuits.lower = max(self._circuits.lower, self.lower)
        self._circuits.search(budget)
        if self._circuits.weight < self.upper:
            self._know_classes(np.array(self._circuits.best))
        self.lower = max(self.lower, self._circuits.lower)

    def disjoint_sets(self, budget: Budget) -> None:
        """Disjoint information sets, the heaviest classes first, and the rows of their echelon forms."""
        r, n = self.Q.shape
        left, used, bound = np.argsort(-self.weights, kind="stable"), np.empty(0, np.int64), 0
        while not self.done and left.size and budget.take(r * r * n / 20):
            pivots = self._rows_of(np.concatenate([left, used]))
            among = np.isin(left, pivots)
            counted = 2 - (r - np.count_nonzero(among))
            if counted < 1:
                break
            bound += int(np.sort(self.weights[left[among]])[:counted].sum())
            self.lower = max(self.lower, min(self.upper, bound))
            left, used = left[~among], np.concatenate([used, left[among]])

    def random_sets(self, budget: Budget, tries: int = 20) -> None:
        """The rows of echelon forms with random pivots: they may be lighter."""
        r, n = self.Q.shape
        for _ in range(tries):
            if self.done or not budget.take(r * r * n / 20):
                return
            self._rows_of(self._rng.permutation(n))

    def _rows_of(self, columns: NDArray[np.int64]) -> list[int]:
        R, pivots = echelon(self.Q, self.p, columns)
        weights = (R != 0) @ self.weights
        if weights.min() < self.upper:
            self._know_classes(np.flatnonzero(R[weights.argmin()]))
        return pivots

    def _know_classes(self, places: NDArray[np.int64]) -> None:
        self.know(np.isin(self._labels, self._names[places]))
