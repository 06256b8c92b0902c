"""Multi-RoundSecAgg Remark 6 and App. C: no family with privacy T has more sets than batch partitioning.

Strong T is the least number of users with the same non-zero column (see
`simfl.runs.multi_round_privacy.metrics`). A further set only splits such classes or makes new ones of users
who were in none, so every part of a family with privacy T has it too, and a search that stops at the first
set too many misses no family.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

from papers.entry import Cell, Entry, Evidence, Place

SIZES = (
    (4, 2, 2),
    (6, 2, 2),
    (6, 3, 3),
    (8, 2, 2),
    (8, 4, 2),
    (8, 4, 4),
    (9, 3, 3),
    (10, 2, 2),
    (10, 5, 5),
)
"""(N, K, T) with K <= N / 2."""
WITHOUT = ((6, 2), (6, 3))
"""T = 1 keeps nothing apart: all C(N, K) sets will do."""


def largest(N: int, K: int, T: int) -> int:
    """Return the most sets of K of N users that a family with privacy T has, by trying all families.

    >>> largest(4, 2, 2)
    2
    """
    sets = [sum(1 << user for user in chosen) for chosen in combinations(range(N), K)]

    def grow(classes: tuple[int, ...], nobody: int, left: list[int]) -> int:
        fits = [(s, after) for s in left if (after := split(classes, nobody, s, T)) is not None]
        best = 0
        for k, (s, after) in enumerate(fits):
            if len(fits) - k <= best:
                break
            best = max(best, 1 + grow(after, nobody & ~s, [later for later, _ in fits[k + 1 :]]))
        return best

    return grow((), (1 << N) - 1, sets)


def split(classes: tuple[int, ...], nobody: int, chosen: int, T: int) -> tuple[int, ...] | None:
    """Return the classes with one set more; None if one of them has fewer than T users. nobody: the users
    who were in no set before."""
    parts = [nobody & chosen]
    for users in classes:
        parts += [users & chosen, users & ~chosen]
    kept = tuple(part for part in parts if part)
    return kept if all(part.bit_count() >= T for part in kept) else None


def run(place: Place) -> Evidence:
    """The largest family of each size, beside C(N/T, K/T)."""
    cells = [
        Cell(words(N, K, T), comb(N // T, K // T), largest(N, K, T), "sets", bound=0) for N, K, T in SIZES
    ]
    cells += [
        Cell(words(N, K, 1), comb(N, K), largest(N, K, 1), "sets", bound=0, basis="by construction")
        for N, K in WITHOUT
    ]
    return Evidence(tuple(cells))


def words(N: int, K: int, T: int) -> str:
    return f"largest family, N = {N}, K = {K}, T = {T}"


ENTRY = Entry(
    name="multi_round_remark6",
    paper="Multi-RoundSecAgg",
    where="Remark 6, App. C",
    title="Largest family of user sets with multi-round privacy T",
    on="all families of sets of K of N users, N up to 10",
    how="Remark 6: for K <= N / 2 no strategy has more than C(N/T, K/T) distinct sets. The exhaustive search"
    " must find exactly as many.",
    run=run,
)
