"""The lightest linearly dependent set among weighted vectors modulo a prime, by size.

The support of a non-zero vector of a row space is a dependent set of the columns of its kernel, and the
minimal ones are the circuits of these columns. Looking for circuits of s = 1, 2, 3, ... columns in turn gives
after every s the lightest circuit found and a bound below which there is none.

Dependent sets of s vectors stay dependent under any linear map, so the search maps the vectors at random to s
coordinates, where few others are dependent, and checks what it finds in full. Nothing is ever missed: where
the map was unlucky (it sent an independent set to a dependent one) this is seen and raised.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from simfl.runs.multi_round_privacy.modular import Ints, Residues, Unlucky, inverses, rank


@dataclass
class Budget:
    """The work that is left to do, in products modulo p (about 0.1 microseconds each)."""

    left: float

    def take(self, work: float) -> bool:
        """Charge the work and return True, if there is enough left for it."""
        enough = work <= self.left
        self.left -= work if enough else 0
        return enough


class Circuits:
    """The search among the rows of `vectors`, [n, m] of rank m, where row i weighs `weights[i]` > 0.

    `best` is the lightest circuit found so far, its rows of `vectors`, and `weight` its weight; no circuit is
    lighter than `lower`. When the two agree the search is over.
    """

    def __init__(self, vectors: Residues, weights: Ints, p: int, rng: np.random.Generator) -> None:
        self.p, self.rng, self.vectors, self.weights = p, rng, vectors, weights
        self.best: tuple[int, ...] = ()
        self.weight = int(weights.sum()) + 1
        self.lower = int(weights.min())
        self._rows = np.argsort(weights, kind="stable")  # those that further circuits are made of
        self._size = 0
        self._dimension = vectors.shape[1]

    def search(self, budget: Budget) -> None:
        """Go on to larger circuits until the lightest is known or the budget does not allow it."""
        while self.lower < self.weight and self._step(self._size + 1, budget):
            self._size += 1
            if self._size > self._dimension or self._rows.size == self._dimension:  # the rest is independent
                self.lower = self.weight
            else:
                # Circuits not found yet have more members, of whom these are the lightest.
                rest = int(self.weights[self._rows[: self._size + 1]].sum())
                self.lower = min(self.weight, max(self.lower, rest))

    def _step(self, s: int, budget: Budget) -> bool:
        if s > self._dimension:  # any s of them are dependent, and there are no smaller circuits among them
            if self._rows.size >= s:
                self._found(self._rows[:s])
            return True
        n = self._rows.size
        work = n * self._dimension
        if s > 2:
            work += n * self._dimension * s + comb(n, s - 1) + 600 * comb(n, s - 3)
        if not budget.take(work):
            return False
        if s == 1:
            self._zeros()
        elif s == 2:
            self._parallels()
        else:
            map_ = self.rng.integers(1, self.p, (self._dimension, s))
            self._deeper(project(self.vectors[self._rows], map_, self.p), self._rows, ())
        return True

    def _found(self, rows: Ints) -> None:
        weight = int(self.weights[rows].sum())
        if weight < self.weight:
            self.weight, self.best = weight, tuple(sorted(rows.tolist()))

    def _zeros(self) -> None:
        zero = ~self.vectors[self._rows].any(axis=1)
        if zero.any():
            self._found(self._rows[zero][:1])
        self._rows = self._rows[~zero]  # no other circuit holds one of them

    def _parallels(self) -> None:
        """Keep the lightest of each class of parallel vectors: no larger circuit holds two of one class."""
        X = self.vectors[self._rows]
        first = np.take_along_axis(X, (X != 0).argmax(axis=1)[:, None], axis=1)
        scaled = X * inverses(first.ravel(), self.p)[:, None] % self.p
        lightest: dict[bytes, int] = {}
        for row, line in zip(self._rows.tolist(), scaled, strict=True):
            lighter = lightest.setdefault(line.tobytes(), row)
            if lighter != row:
                self._found(np.array([lighter, row]))
        self._rows = np.array([*lightest.values()], np.int64)

    def _deeper(self, X: Residues, rows: Ints, chosen: tuple[int, ...]) -> None:
        """Circuits that hold `chosen` and others of `rows`, whose images modulo `chosen` are X, [n, left]."""
        left = X.shape[1]
        if left == 3:
            self._collinear(X, rows, chosen)
            return
        weight = int(self.weights[list(chosen)].sum())
        for i in range(len(rows) - left + 1):
            if weight + int(self.weights[rows[i : i + left]].sum()) >= self.weight:
                break  # the others are no lighter
            x, others = X[i], X[i + 1 :]
            members = (*chosen, int(rows[i]))
            if x[0] == 0:
                self._must_depend(*members)
                continue
            image = (x[0] * others[:, 1:] - others[:, :1] * x[1:]) % self.p  # one elimination step
            self._deeper(image, rows[i + 1 :], members)

    def _collinear(self, X: Residues, rows: Ints, chosen: tuple[int, ...]) -> None:
        """All dependent triples of X, [n, 3], at once: with the first as the origin, two of one slope."""
        flat = X[:, 0] == 0
        for row in rows[flat]:
            self._must_depend(*chosen, row)
        X, rows = X[~flat], rows[~flat]
        i, j = np.triu_indices(len(rows), 1)
        x, y = X[i], X[j]
        run = (x[:, 0] * y[:, 1] - y[:, 0] * x[:, 1]) % self.p
        rise = (x[:, 0] * y[:, 2] - y[:, 0] * x[:, 2]) % self.p
        level = run == 0
        for a, b in zip(rows[i[level]], rows[j[level]], strict=True):
            self._must_depend(*chosen, a, b)
        i, j, run, rise = (array[~level] for array in (i, j, run, rise))
        key = i * self.p + rise * inverses(run, self.p) % self.p
        ordered = np.sort(key)
        if not (ordered[1:] == ordered[:-1]).any():  # mostly so: the rest takes many times as long
            return
        order = np.argsort(key, kind="stable")  # lighter first among equals, as the rows are
        for line in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
            for a, b in combinations(line.tolist(), 2):
                circuit = (*chosen, *rows[[i[a], j[a], j[b]]].tolist())
                lighter = int(self.weights[list(circuit)].sum()) < self.weight
                if lighter and self._dependent(circuit):  # and not by the accident of the map
                    self._found(np.array(circuit))

    def _dependent(self, rows: tuple[int, ...]) -> bool:
        return rank(self.vectors[list(rows)], self.p) < len(rows)

    def _must_depend(self, *rows: int) -> None:
        """Raise Unlucky for a set seen as dependent too early, unless it is (and was found at its size)."""
        if not self._dependent(rows):
            raise Unlucky


def project(X: Residues, map_: Residues, p: int) -> Residues:
    """Return X map_ modulo p, [n, m] x [m, s], term by term as the sums would overflow."""
    image = np.zeros((len(X), map_.shape[1]), np.int64)
    for column, row in zip(X.T, map_, strict=True):
        image = (image + column[:, None] * row) % p
    return image
