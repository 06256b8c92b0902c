"""The weak multi-round privacy guarantee T of a participation matrix (Remark 1, and T^(t) of section 6).

T = min ||P^T z||_0 over the z with P^T z != 0: the least support of a non-zero vector of P's row space over
the reals, a problem that is hard in general (the minimum distance of a code). The non-zeros of a reduced row
echelon form alone overstate it. So the answer is an interval, [lower, upper], as narrow as a budget of work
allows; where the two agree it is T.

Facts used:
- A class of users with identical columns is one column with a weight; T is at least the smallest (strong T).
- v is in the row space if and only if it is orthogonal to the kernel of P. So T is the lightest circuit of
  the kernel's columns, looked for by size (`circuits`). A user's column of the kernel is zero exactly if the
  server can single that user out, and so is the user's row of the echelon form a unit vector.
- With g disjoint information sets, each with its reduced echelon form, a vector that is no multiple of one of
  their rows has two non-zeros in each set: a bound of 2 g (Brouwer and Zimmermann).
- The row space only grows, so T never rises: an upper bound holds later too, a lower bound earlier too.

Certain: that T = 1, by a combination of rounds checked in integers (`modular`), and every other upper bound
as far as the budget goes (at the paper's 120 users it does); beyond, it holds modulo a prime near 2^31, and
is wrong with a chance of about 2^-31. Lower bounds, and so that T > 1, are certain if P has the same rank
modulo the prime as over the rationals. It has less only if the prime divides all of P's largest non-zero
minors: for a prime that P was not made for, again a chance of about 2^-31.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simfl.runs.multi_round_privacy.circuits import Budget, Circuits
from simfl.runs.multi_round_privacy.metrics import Classes, Matrix, rounds, sparse, strong_over_time
from simfl.runs.multi_round_privacy.modular import (
    Echelon,
    Ints,
    Residues,
    Rows,
    RowSpace,
    echelon,
    indicators,
    proved_support,
    with_a_prime,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BUDGET = 10_000_000
"""Work of a search in products modulo a prime, about 0.1 microseconds each: a second or two. Not in it is the
elimination that there is in any case, O(t N K + N^3)."""
RUN_BUDGET = 2_000_000
"""Of a search beside a run: a fraction of a second."""

Interval = tuple[int, int]


def weak_over_time(P: Matrix, budget: float = BUDGET) -> list[Interval | None]:
    """Return [lower, upper] of the weak T after each round of P, [t, N]; None until somebody takes part.

    Neither bound ever rises. T = 1 is always decided: from the first round after which it holds the interval
    is (1, 1), and before that its lower end is at least 2. `budget`: of all rounds together.

    >>> weak_over_time(np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]]))
    [(2, 2), (2, 2), (1, 1)]
    """
    return with_a_prime(lambda p: _over_time(sparse(P), p, Budget(budget)))


def _over_time(P: csr_array, p: int, budget: Budget) -> list[Interval | None]:
    # T belongs to the row space and not to the round: basis[: at + 1] span the space after `at` growths, and
    # lower[at] and inside[at] bound its T. step: the space after each round, -1 while nobody took part.
    users, basis, lower, inside, step = P.shape[1], list[Ints](), list[int](), [], []
    seen = light_vectors(P, RowSpace(users, p))
    for members, strong, (grew, lightest) in zip(rounds(P), strong_over_time(P), seen, strict=True):
        if grew:
            basis.append(members)
            lower.append(0)
            inside.append(lightest)
        step.append(len(basis) - 1)
        if strong is not None:  # ahead of any search: it is a bound, and singling out a user is always seen
            lower[-1], inside[-1] = max(strong, min(2, int(lightest.sum()))), lightest
    proofs = Budget(budget.left)
    _narrow(basis, lower, inside, p, budget)
    upper = list[int]()
    for at, support in enumerate(inside):
        least = int(support.sum())
        if upper and upper[-1] <= least:
            least = upper[-1]
        elif least == 1 or proofs.take((at + 1) ** 2 * users / 5):
            least = len(proved_support(basis[: at + 1], support))
        upper.append(least)
    return [(min(lower[at], upper[at]), upper[at]) if at >= 0 else None for at in step]


def _narrow(basis: Rows, lower: list[int], inside: list[NDArray[np.bool_]], p: int, budget: Budget) -> None:
    """Search where the bounds of `basis[: at + 1]`, lower[at] and inside[at].sum(), are apart.

    The larger the space, the smaller the circuits (up to one more than the kernel's dimension), so it starts
    from the end. Once three in a row brought nothing, larger circuits are out of reach, and what is before is
    halved: in small spaces the disjoint information sets are many.
    """
    each, misses = budget.left / 20, 0

    def search(at: int) -> bool:
        lower[at] = known = max(lower[at:])
        if known >= inside[at].sum():
            return True
        if not budget.take((at + 1) ** 2 * inside[at].size / 20):
            return False
        classes = Classes(inside[at].size)
        for members in basis[: at + 1]:
            classes.append(members)
        space = echelon(indicators(basis[: at + 1], inside[at].size), p)
        found = Search(space, classes.labels, inside[at], known)
        found.disjoint_sets(budget)
        part = Budget(min(each, budget.left))
        budget.left -= part.left
        found.circuits(part)
        budget.left += part.left
        lower[at], inside[at] = found.lower, found.inside
        return found.lower > known

    def halves(first: int, last: int) -> None:
        if first <= last and lower[last] < inside[first].sum():
            middle = (first + last) // 2
            if search(middle):
                halves(middle + 1, last)
            halves(first, middle - 1)

    last = len(inside) - 1
    while last >= 0 and misses < 3:
        misses = 0 if search(last) else misses + 1
        last -= 1
    halves(0, last)
    for at in reversed(range(len(lower) - 1)):
        lower[at] = max(lower[at], lower[at + 1])


def light_vectors(P: csr_array, space: RowSpace) -> Iterator[tuple[bool, NDArray[np.bool_]]]:
    """Add the rounds of P to `space`; yield after each whether it grew, and the lightest support seen so far.

    Seen are the rounds, their differences and the rows of the reduced echelon form; the last alone show every
    user that can be singled out. Supports are boolean, [users].
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
    """Bounds of the lightest vector of a row space: `inside`, [users], is the support of the lightest one
    known; no vector is lighter than `lower`. labels, [users]: equal for users with identical columns, and 0
    for those whose column is zero."""

    def __init__(self, space: Echelon, labels: Ints, inside: NDArray[np.bool_], lower: int) -> None:
        self.inside, self.lower, self.p = inside, lower, space.p
        self.space, self._labels = space, labels
        names, first, sizes = np.unique(self._labels, return_index=True, return_counts=True)
        took_part = names > 0
        self._names, self.weights = names[took_part], sizes[took_part]
        self.Q: Residues = self.space.rows[:, first[took_part]]

    @property
    def upper(self) -> int:
        return int(self.inside.sum())

    def circuits(self, budget: Budget) -> None:
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
            R, pivots, _ = echelon(self.Q, self.p, np.concatenate([left, used]))
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

    def _know(self, classes: Ints) -> None:
        inside = np.isin(self._labels, self._names[classes])
        if 0 < inside.sum() < self.upper:
            self.inside = inside
