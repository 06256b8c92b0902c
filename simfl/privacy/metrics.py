"""Family size, cardinality and fairness: promised by Multi-RoundSecAgg's Theorem 1, measured in section 6."""

from __future__ import annotations

from math import comb

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.matrix import Matrix, rounds, sparse
from simfl.selection.schemes import check_batches


def family_size(N: int, K: int, T: int) -> int:
    """Return R_BP = C(N / T, K / T), the number of sets of users that a round can have (eq. 8).

    N users, K a round, batches of T; ValueError as `check_batches`. The paper's Table 1 prints 91389 for

    >>> family_size(N=120, K=12, T=3)
    91390
    """
    check_batches(N, K, T)
    return comb(N // T, K // T)


def cardinality(N: int, K: int, T: int, p: float) -> float:
    """Return C, the mean number of users of a round (eq. 7), where each is away with probability p.

    Theorem 1: C = K (1 - sum_{i = N/T - K/T + 1}^{N/T} C(N/T, i) q^i (1 - q)^(N/T - i)), q = 1 - (1 - p)^T.
    That is K times the chance that at least K / T of N / T batches are whole, the regularised incomplete
    beta function I_{1-q}(K/T, N/T - K/T + 1). T = 1 is random and weighted random selection, T = K
    partitioning. ValueError unless 0 <= p <= 1, and as `check_batches`.
    """
    check_batches(N, K, T)
    if not 0 <= p <= 1:
        raise ValueError(f"p={p} must be from 0 to 1")
    batches, wanted = N // T, K // T
    from scipy.special import betainc  # not with the module, which every run imports

    return K * float(betainc(wanted, batches - wanted + 1, (1 - p) ** T))


def fairness_gaps(P: Matrix) -> NDArray[np.float64]:
    """Return F^(t) = max_i F_i^(t) - min_i F_i^(t), [t], where F_i^(t) = f_i^(t+1) / (t + 1).

    f_i^(t+1): of rounds 0 .. t, those that user i of P, [t, N], took part in; a skipped round counts too.
    """
    counts, gaps = np.zeros(sparse(P).shape[1], np.int64), []
    for t, members in enumerate(rounds(P)):
        counts[members] += 1
        gaps.append((counts.max() - counts.min()) / (t + 1))
    return np.array(gaps, np.float64)


def cardinalities(P: Matrix) -> NDArray[np.float64]:
    """Return C^(t), [t]: the mean number of users of rounds 0 .. t of P, [t, N]; a skipped one has 0."""
    sizes = np.diff(sparse(P).indptr)
    return np.cumsum(sizes) / np.arange(1, sizes.size + 1)
