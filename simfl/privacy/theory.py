"""Bounds of Multi-RoundSecAgg that a run is compared with: C where users differ (section 6), the rank of P
(Theorem 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simfl.world.selection import check_batches


def cardinality_of(p: Sequence[float], K: int, T: int) -> float:
    """Return C (eq. 7) where user i is away with probability p_i: K times the chance that at least K / T of
    the N / T batches are whole. Batch b is users b T .. b T + T - 1 and is whole with the product of their
    1 - p_i, so the number of whole batches is Poisson-binomial; its distribution is built batch by batch.
    Theorem 1 is the case of equal p_i. ValueError unless all 0 <= p_i <= 1, and as `check_batches`.

    >>> cardinality_of([0.5, 0.5], K=1, T=1)
    0.75
    """
    N = len(p)
    check_batches(N, K, T)
    here = 1 - np.asarray(p, np.float64)
    if not ((here >= 0) & (here <= 1)).all():
        raise ValueError(f"each p must be from 0 to 1: {list(p)}")
    whole = np.ones(1)  # P[exactly k whole] of the batches so far, [k]
    for chance in here.reshape(N // T, T).prod(axis=1):
        whole = np.append(whole * (1 - chance), 0) + np.append(0, whole * chance)
    return K * float(whole[K // T :].sum())


def rank_bound(N: int, K: int) -> float:
    """Return the bound of eq. 32 on P[P has rank N after N rounds] for i.i.d. selection, t = K / N, without
    its o(1): 1 - 2 N (1 - t)^N - N (N - 1) (t^2 + (1 - t)^2)^N. It may be negative, where it says nothing.

    >>> round(rank_bound(40, 8), 3)
    0.989
    """
    t = K / N
    return 1 - 2 * N * (1 - t) ** N - N * (N - 1) * (t**2 + (1 - t) ** 2) ** N
