"""Fairness and cardinality round by round, as section 6 of Multi-RoundSecAgg measures them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.matrix import Matrix, rounds, sparse


def fairness_gaps(P: Matrix) -> NDArray[np.float64]:
    """F^(t) = max_i F_i^(t) - min_i F_i^(t) for every t, [t], where F_i^(t) = f_i^(t+1) / (t + 1).

    f_i^(t+1) are the rounds 0 .. t that user i of P, [t, N], took part in; a skipped round counts in t + 1.
    """
    counts = np.zeros(sparse(P).shape[1], np.int64)
    gaps = []
    for t, members in enumerate(rounds(P)):
        counts[members] += 1
        gaps.append((counts.max() - counts.min()) / (t + 1))
    return np.array(gaps, np.float64)


def cardinalities(P: Matrix) -> NDArray[np.float64]:
    """C^(t) for every t, [t]: the mean number of users of rounds 0 .. t of P, [t, N]; a skipped one has 0."""
    sizes = np.diff(sparse(P).indptr)
    return np.cumsum(sizes) / np.arange(1, sizes.size + 1)
