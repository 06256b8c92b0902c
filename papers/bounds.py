"""Bounds of the papers that runs are compared with: on the loss and the gradient after J rounds, on C where
users differ (Multi-RoundSecAgg, section 6) and on the rank of P (its Theorem 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simfl.world.selection import check_batches


def strongly_convex_bound(
    *,
    N: int,
    K: int,
    C: float,
    E: int,
    J: int,
    mu: float,
    rho: float,
    sigma2: float,
    G2: float,
    Gamma: float,
    distance2: float,
) -> float:
    """Return the bound of Multi-RoundSecAgg's Theorem 2 (eq. 10) on E[L(x_J)] - L*.

    With gamma = max(8 rho / mu, E), alpha = sigma2 + 6 rho Gamma + 8 (E - 1)^2 G2 and
    beta = 4 (N - K) E^2 G2 / (K (N - 1)):

        rho / (gamma + C/K E J - 1) (2 (alpha + beta) / mu^2 + gamma/2 distance2)

    It holds for step sizes 2 / (mu (gamma + j)) at step j (Li 2019), j counting the steps of rounds that
    were not skipped, and a random set of K users in each of these.

    Args:
        N, K, C: users, users of a round, and the average aggregation cardinality (eq. 7).
        E, J: local steps of a round, and rounds, skipped ones too.
        mu, rho: every L_i is mu-strongly convex and rho-smooth.
        sigma2: the mean over users of the variance of a stochastic gradient.
        G2: the most that the expected squared norm of a stochastic gradient comes to.
        Gamma: L* - mean_i L_i*. The paper prints the sum over i; the proof of Li 2019 has the mean.
        distance2: E ||x_0 - x*||^2.

    Raises:
        ValueError: C is not positive, or mu is not in (0, rho].

    References: Multi-RoundSecAgg, Theorem 2 and App. B; Li et al. 2019, Theorem 3.

    >>> one = dict(N=2, K=1, C=1.0, E=1, mu=1.0, rho=1.0, sigma2=0.0, G2=0.0, Gamma=0.0, distance2=1.0)
    >>> strongly_convex_bound(J=1, **one), strongly_convex_bound(J=9, **one)
    (0.5, 0.25)
    """
    if not 0 < mu <= rho or not C > 0:
        raise ValueError(f"mu={mu} must be above 0 and at most rho={rho}, and C={C} above 0")
    gamma = max(8 * rho / mu, E)
    alpha = sigma2 + 6 * rho * Gamma + 8 * (E - 1) ** 2 * G2
    beta = 4 * (N - K) * E**2 * G2 / (K * (N - 1))
    return rho / (gamma + C / K * E * J - 1) * (2 * (alpha + beta) / mu**2 + gamma / 2 * distance2)


def buffered_bound(
    *,
    K: int,
    E: int,
    J: int,
    L: float,
    eta_l: float,
    eta_g: float,
    gap: float,
    local2: float,
    sigma2: float,
    tau_max: int,
    drift: bool = True,
) -> float:
    """Return the bound of LightSecAgg's Theorem 2 (eq. 39) on the mean of ||grad F(x_t)||^2 over J rounds:

        2 gap / (eta_g eta_l E K J) + L eta_g eta_l local2 / 2
        + 3 L^2 E^2 eta_l^2 (eta_g^2 K^2 tau_max^2 + 1) sigma2

    It is for a server that *adds up* the K updates of a buffer: x <- x - eta_g sum_i Delta_i. For the mean
    that eq. 38 prints, give eta_g / K. The paper calls J also T.

    Args:
        K, E, J: updates of a buffer, local steps of an update, and rounds.
        L: every F_i is L-smooth.
        eta_l, eta_g: step sizes, with eta_l eta_g K E <= 1 / L.
        gap: F(x_0) - F*.
        local2: sigma_cl^2, d / (4 c_l^2) + sigma_l^2.
        sigma2: G + sigma_g^2 + sigma_c^2, with G the most that ||grad F_i||^2 comes to.
        tau_max: the largest staleness.
        drift: the + 1, for models that move in local steps; eq. 39 leaves it out.

    Raises:
        ValueError: the step sizes are too large.

    References: LightSecAgg, App. F.4; Nguyen et al. 2021, Corollary 1.

    >>> buffered_bound(K=1, E=1, J=2, L=1, eta_l=1, eta_g=0.5, gap=1, local2=4, sigma2=1, tau_max=2)
    9.0
    """
    if eta_l * eta_g * K * E > 1 / L:
        raise ValueError(f"eta_l eta_g K E = {eta_l * eta_g * K * E} must be at most 1 / L = {1 / L}")
    step = eta_g * eta_l
    moved = (eta_g * K * tau_max) ** 2 + drift
    return 2 * gap / (step * E * K * J) + L * step * local2 / 2 + 3 * (L * E * eta_l) ** 2 * moved * sigma2


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
    its o(1): 1 - 2 N (1 - t)^N - N (N - 1) (t^2 + (1 - t)^2)^N. A negative value bounds nothing.

    >>> round(rank_bound(40, 8), 3)
    0.989
    """
    t = K / N
    return 1 - 2 * N * (1 - t) ** N - N * (N - 1) * (t**2 + (1 - t) ** 2) ** N


def cardinality(N: int, K: int, T: int, p: float) -> float:
    """Return C, the mean number of users of a round (eq. 7), where each user is offline with probability p.

    Theorem 1: C = K (1 - sum_{i = N/T - K/T + 1}^{N/T} C(N/T, i) q^i (1 - q)^(N/T - i)), q = 1 - (1 - p)^T.
    That is K times the chance that at least K / T of N / T batches are complete, the regularised incomplete
    beta function I_{1-q}(K/T, N/T - K/T + 1). T = 1 is random and weighted random selection, T = K
    partitioning.

    Raises:
        ValueError: p is not from 0 to 1, or as of `check_batches`.
    """
    check_batches(N, K, T)
    if not 0 <= p <= 1:
        raise ValueError(f"p={p} must be from 0 to 1")
    batches, needed = N // T, K // T
    # All papers' modules are imported together, and scipy takes a tenth of a second.
    from scipy.special import betainc

    return K * float(betainc(needed, batches - needed + 1, (1 - p) ** T))
