"""What Multi-RoundSecAgg promises: the size of its family and its average aggregation cardinality."""

from __future__ import annotations

from math import comb

from simfl.selection.schemes import check_batches


def family_size(N: int, K: int, T: int) -> int:
    """R_BP = C(N / T, K / T), the number of sets of users that a round can have (eq. 8).

    N users, K a round, batches of T; ValueError as `check_batches`. For N=120, K=12, T=3 this is 91390; the
    paper's Table 1 prints 91389.

    >>> family_size(120, 12, 3)
    91390
    """
    check_batches(N, K, T)
    return comb(N // T, K // T)


def cardinality(N: int, K: int, T: int, p: float) -> float:
    """C, the users that take part in a round on average (eq. 7), where each is away with probability p.

    Theorem 1: C = K (1 - sum_{i = N/T - K/T + 1}^{N/T} C(N/T, i) q^i (1 - q)^(N/T - i)), q = 1 - (1 - p)^T.
    That is K times the chance that at least K / T of N / T batches are whole, the regularised incomplete
    beta function I_{1-q}(K/T, N/T - K/T + 1). T = 1 is random and weighted random selection, T = K
    partitioning. ValueError unless 0 <= p <= 1, and as `check_batches`.

    >>> round(cardinality(120, 12, T=4, p=0.3), 2)
    11.83
    """
    check_batches(N, K, T)
    if not 0 <= p <= 1:
        raise ValueError(f"p={p} must be from 0 to 1")
    batches, wanted = N // T, K // T
    from scipy.special import betainc  # not with the module, which every run imports

    return K * float(betainc(wanted, batches - wanted + 1, (1 - p) ** T))
