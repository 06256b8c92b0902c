"""T, rank and who can be singled out, of sums in which a user's weight changes from one to the next.

Over a buffer a sum is weighted by staleness (LightSecAgg eq. 26). A row of P then holds, for each of its
users, the ratio of its weight to its largest: a factor that a user always has is a part of the unknown
w_i delta_i, as its number of samples is. With weights that never change, P is of zeros and ones.

Weak T is the least support of a non-zero vector of P's row space, as ever. Strong T is the smallest number of
users with identical columns of these ratios: every result computed from the sums has such users in the one
proportion that they always had. Eq. 5 asks for equal factors, and is met where the weights do not change.

Ratios are taken as the simplest fractions that they may be. A result modulo the prime is wrong with a
chance of about 2^-31 (`weak`); nothing is proved in integers here.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.runs.multi_round_privacy.circuits import Budget
from simfl.runs.multi_round_privacy.modular import PRIMES, Echelon, Residues, echelon, with_a_prime
from simfl.runs.multi_round_privacy.weak import BUDGET, Interval, Search

SIMPLEST = 1_000_000  # the largest denominator of a ratio: of staleness weights it is c_g


@dataclass(frozen=True, slots=True)
class Spanned:
    """The row space of P, [t, N], modulo a prime."""

    space: Echelon
    labels: NDArray[np.int64]
    """Equal for users with identical columns, 0 for those that took no part, [N]."""

    @property
    def strong(self) -> int | None:
        """The least number of users with identical columns; None if nobody took part."""
        sizes = np.bincount(self.labels)[1:]
        return int(sizes.min()) if sizes.size else None


def ratios(weights: NDArray[Any]) -> NDArray[np.float64]:
    """Return P of the weights of users in each sum, [t, N], 0 of who is not in it.

    >>> ratios(np.array([[4, 0, 0], [2, 3, 0]])).tolist()
    [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0]]
    """
    largest = weights.max(axis=0, initial=0)
    found: NDArray[np.float64] = weights / np.where(largest == 0, 1, largest)
    return found


def residues(P: NDArray[Any], p: int) -> Residues:
    """Return the ratios of P modulo p."""
    values, which = np.unique(P, return_inverse=True)
    simplest = [Fraction(float(value)).limit_denominator(SIMPLEST) for value in values]
    found = [f.numerator * pow(f.denominator, -1, p) % p for f in simplest]
    return np.array(found, np.int64)[which].reshape(P.shape)


def span(P: NDArray[Any], p: int = PRIMES[0]) -> Spanned:
    """Return the row space of P, [t, N], ratios of 0 or above.

    >>> span(np.array([[1, 1, 1], [0.5, 0.5, 0.25]])).labels
    array([2, 2, 1])
    """
    Q = residues(P, p)
    labels = np.zeros(P.shape[1], np.int64)
    took_part = np.flatnonzero(Q.any(axis=0))
    if took_part.size:
        _, group = np.unique(Q[:, took_part], axis=1, return_inverse=True)
        labels[took_part] = group.ravel() + 1
    return Spanned(echelon(Q, p), labels)


def weak(P: NDArray[Any], budget: float = BUDGET) -> Interval | None:
    """Return [lower, upper] of the weak T of P, [t, N]; None if nobody took part.

    >>> weak(np.array([[1, 1, 0], [0, 1, 1], [1, 0.5, 0]]))
    (1, 1)
    """
    return with_a_prime(lambda p: _weak(span(P, p), Budget(budget)))


def _weak(found: Spanned, budget: Budget) -> Interval | None:
    strong = found.strong
    if strong is None:
        return None
    lightest = min((row != 0 for row in found.space.rows), key=np.count_nonzero)
    # A vector of weight 1 is a row of the reduced echelon form: where none is, T is 2 at least.
    known = max(strong, min(2, int(lightest.sum())))
    search = Search(found.space, found.labels, lightest, known)
    search.disjoint_sets(budget)
    search.circuits(budget)
    return min(search.lower, search.upper), search.upper
