"""The weak multi-round privacy guarantee T of a participation matrix (Remark 1, and T^(t) of section 6).

T = min ||P^T z||_0 over the z with P^T z != 0: the least support of a non-zero vector of P's row space over
the reals, a problem that is hard in general (the minimum distance of a code). The non-zeros of a reduced row
echelon form alone overstate it. So the answer is an interval, [lower, upper], as narrow as a budget of work
allows; where the two agree it is T.

What is used:
- Users with identical columns move together, so that a class of them is one column with a weight; T is at
  least the smallest class (the strong T).
- v is in the row space if and only if it is orthogonal to the kernel of P. So T is the lightest circuit of
  the kernel's columns, looked for by size (`circuits`). A user's column of the kernel is zero exactly if the
  server can single that user out, and so is the user's row of the echelon form a unit vector.
- With g disjoint information sets, each with its reduced echelon form, whatever is no multiple of one of
  their rows has two non-zeros in each set: a bound of 2 g (Brouwer and Zimmermann).
- The row space only grows, so T never rises: an upper bound holds later too, a lower bound earlier too.

Certain: the upper bound of `weak`, and that T = 1, by a combination of rounds checked in integers
(`certificate`). So is every other upper bound of `weak_over_time` as far as the budget goes (at the paper's
120 users it does); beyond, it holds modulo a prime near 2^31, and is wrong with a chance of about 2^-31.
Lower bounds, and so that T > 1, are computed modulo the prime and certain provided that P has the same rank
modulo it as over the rationals. It can only have less, if the prime divides all of P's largest non-zero
minors: for a prime that P was not made for, again a chance of about 2^-31.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.bounds import Growing, Rows, Search
from simfl.privacy.certificate import Unlucky, combination, support
from simfl.privacy.circuits import Budget
from simfl.privacy.matrix import Matrix, rounds, sparse
from simfl.privacy.modular import PRIMES, RowSpace
from simfl.privacy.strong import strong_over_time

BUDGET = 10_000_000
"""Work of a search in products modulo a prime, about 0.1 microseconds each: a second or two. Not in it is the
elimination that there is in any case, O(t N K + N^3)."""

Interval = tuple[int, int]
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Weak:
    """lower <= T <= upper; `z`, [t] coprime integers, is such that P^T z is non-zero exactly on `users`.

    `users`: upper of them, ascending: those whose combination the server can reconstruct.
    """

    lower: int
    upper: int
    users: tuple[int, ...]
    z: tuple[int, ...]

    @property
    def exact(self) -> bool:
        return self.lower == self.upper


def weak(P: Matrix, budget: float = BUDGET) -> Weak | None:
    """The weak T of P, [t, N]; None if nobody took part. `budget`: see `BUDGET`."""
    rows, users = rounds(P), sparse(P).shape[1]
    return _with_luck(lambda p: _weak(rows, users, p, Budget(budget)))


def weak_over_time(P: Matrix, budget: float = BUDGET) -> list[Interval | None]:
    """[lower, upper] of the weak T after each round of P, [t, N]; None as long as nobody has taken part.

    Neither bound ever rises. Whether T = 1 is always decided: from the first round after which it holds the
    interval is (1, 1), and before that its lower end is at least 2. `budget`: of all rounds together.
    """
    rows, users = rounds(P), sparse(P).shape[1]
    strong = strong_over_time(P)
    return _with_luck(lambda p: _over_time(rows, users, strong, p, Budget(budget)))


def _with_luck(answer: Callable[[int], _Answer]) -> _Answer:
    for p in PRIMES:
        try:
            return answer(p)
        except Unlucky:
            continue
    raise ArithmeticError(f"none of the primes {PRIMES} suits this participation matrix")


def _weak(rows: Rows, users: int, p: int, budget: Budget) -> Weak | None:
    growing = Growing(users, p)
    for members in rows:
        growing.append(members)
    space = growing.space
    if not space.pivots:
        return None
    search = Search([rows[source] for source in space.sources], users, p)
    search.know(growing.inside)
    search.disjoint_sets(budget)
    search.circuits(budget)
    search.random_sets(budget)
    z = combination(rows, space.rows, space.sources, search.inside, p)
    reached = support(rows, z)
    return Weak(min(search.lower, len(reached)), len(reached), reached, z)


def _over_time(
    rows: Rows, users: int, strong: list[int | None], p: int, budget: Budget
) -> list[Interval | None]:
    growing, step, inside = Growing(users, p), [], []
    for members in rows:
        if growing.append(members):
            inside.append(growing.inside)
        elif inside:
            inside[-1] = growing.inside  # T belongs to the row space, not to the round
        step.append(len(inside) - 1)
    basis = [rows[source] for source in growing.space.sources]
    # Ahead of any search: the strong T, and that a user who can be singled out is always seen.
    lower = [0] * len(inside)
    for at, least in zip(step, strong, strict=True):
        if at >= 0 and least is not None:
            lower[at] = max(least, min(2, int(inside[at].sum())))
    proofs = Budget(budget.left)
    _narrow(basis, lower, inside, p, budget)
    upper: list[int] = []
    for at, seen in enumerate(inside):
        least = int(seen.sum())
        if upper and upper[-1] <= least:
            upper.append(upper[-1])
            continue
        if least > 1 and not proofs.take((at + 1) ** 2 * users / 5):
            upper.append(least)
            continue
        space = RowSpace(users, p)
        for members in basis[: at + 1]:
            space.append(members)
        z = combination(basis[: at + 1], space.rows, range(at + 1), seen, p)
        upper.append(len(support(basis[: at + 1], z)))
    return [(min(lower[at], upper[at]), upper[at]) if at >= 0 else None for at in step]


def _narrow(basis: Rows, lower: list[int], inside: list[NDArray[np.bool_]], p: int, budget: Budget) -> None:
    """Searches where the bounds of `basis[: at + 1]`, lower[at] and inside[at].sum(), are apart.

    The larger the space, the smaller the circuits (up to one more than the kernel's dimension), so it starts
    from the end. Once three in a row brought nothing, larger circuits are out of reach; what is before is
    halved, for in small spaces the disjoint information sets are many.
    """
    each, misses = budget.left / 20, 0

    def search(at: int) -> bool:
        lower[at] = known = max(lower[at:])
        if known >= inside[at].sum():
            return True
        if not budget.take((at + 1) ** 2 * inside[at].size / 20):
            return False
        found = Search(basis[: at + 1], inside[at].size, p)
        found.lower = known
        found.know(inside[at])
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
