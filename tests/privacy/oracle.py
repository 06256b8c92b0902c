"""Brute force over the rationals, for few users."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Exact = list[list[Fraction]]


def reduced(P: NDArray[Any], order: tuple[int, ...] | None = None) -> Exact:
    """The non-zero rows of the reduced row echelon form, pivots looked for in the order of columns given."""
    rows = [[Fraction(int(x)) for x in row] for row in P]
    done = 0
    for c in order or range(P.shape[1]):
        pivot = next((i for i in range(done, len(rows)) if rows[i][c]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        rows[done] = [x / rows[done][c] for x in rows[done]]
        for i, row in enumerate(rows):
            if i != done and row[c]:
                rows[i] = [a - row[c] * b for a, b in zip(row, rows[done], strict=True)]
        done += 1
    return rows[:done]


def rank(P: NDArray[Any]) -> int:
    return len(reduced(P))


def supports(P: NDArray[Any]) -> list[tuple[int, ...]]:
    """The minimum supports of non-zero vectors of the row space: all S that make P without S lose rank."""
    full, N = rank(P), P.shape[1]
    for size in range(1, N + 1):
        found = [
            S for S in combinations(range(N), size) if rank(np.delete(P, S, axis=1)) < full
        ]  # fmt: skip
        if found:
            return found
    return []


def weak(P: NDArray[Any]) -> int | None:
    found = supports(P)
    return len(found[0]) if found else None


def least_row(P: NDArray[Any]) -> int:
    """The fewest non-zeros of a row of the reduced echelon form; 0 if it has none."""
    return min((sum(x != 0 for x in row) for row in reduced(P)), default=0)


def weak_in_floats(P: NDArray[Any]) -> int | None:
    """The same as `weak` by floating-point ranks, for somewhat more users."""
    full, N = np.linalg.matrix_rank(P), P.shape[1]
    for size in range(1, N + 1):
        kept = [[c for c in range(N) if c not in S] for S in combinations(range(N), size)]
        some = P[:, np.array(kept, int)].transpose(1, 0, 2)
        if full and (np.linalg.matrix_rank(some) < full if size < N else np.array([True])).any():
            return size
    return None
