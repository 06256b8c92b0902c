"""Multi-RoundSecAgg: batches of T users that take part together or not at all.

Users 0 .. T - 1 are the first batch, T .. 2 T - 1 the next, and so on. A round takes K / T batches all of
whose users are available. So no linear combination of the rounds' sums tells two users of a batch apart, in
however many rounds: the multi-round privacy guarantee T (Theorem 1).

Source: Multi-RoundSecAgg, section 4, Algorithm 1 (the family B) and Algorithm 2 (the choice of a row). B has
C(N/T, K/T) rows; they are never listed, for its rows that are available are exactly the unions of K / T
batches that are wholly available.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.selection.history import Participation


def check_batches(users: int, k: int, T: int) -> None:
    """ValueError, naming the nearest values that work, unless T divides k and users, and k <= users."""
    if not 1 <= k <= users:
        raise ValueError(f"K={k} must be at least 1 and at most users={users}")
    if T < 1:
        raise ValueError(f"T={T} must be at least 1")
    if k % T:
        fits = [size for size in range(1, k + 1) if k % size == 0 and users % size == 0]
        nearest = [fit for fit in fits if fit < T][-1:] + [fit for fit in fits if fit > T][:1]
        raise ValueError(f"T={T} does not divide K={k}: use {' or '.join(map(str, nearest))}")
    if users % T:
        size = f"T=K={T}" if k == T else f"T={T}"
        below = users - users % T
        raise ValueError(f"users={users} is no multiple of {size}: use {below} or {below + T}")


def multi_round(
    available: Sequence[int] | NDArray[np.int64],
    history: Participation,
    k: int | None,
    rng: np.random.Generator,
    *,
    T: int,
    fair: bool,
) -> list[int] | None:
    """The k users of K / T batches, ascending; None if fewer batches are wholly available.

    fair=False (lambda = 0, for equal drop-out probabilities): every available row of B equally likely.
    fair=True (lambda = 1): uniform among the available rows that hold the user l_min of least frequency.
    Algorithm 2 takes l_min over all available users; a batch-mate of that user may be away, and then no
    available row holds it. Here it is taken over the users of the wholly available batches; of several such
    batches one is drawn uniformly.

    N is the history's. The order of `available` does not matter. ValueError if k is None, or see
    `check_batches`. Time O(N).
    """
    if k is None:
        raise ValueError("multi_round selection needs k, the number of users in a round")
    N = history.users
    check_batches(N, k, T)
    here = np.zeros(N, bool)
    here[np.asarray(available, np.int64)] = True
    batches = np.flatnonzero(here.reshape(-1, T).all(axis=1))
    wanted = k // T
    if batches.size < wanted:
        return None
    if fair:
        frequency = history.counts.reshape(-1, T)[batches].min(axis=1)
        least = np.flatnonzero(frequency == frequency.min())
        first = least[rng.integers(least.size)]
        others = rng.choice(batches.size - 1, size=wanted - 1, replace=False)
        places = np.append(others + (others >= first), first)
        chosen = np.sort(batches[places])
    else:
        chosen = np.sort(rng.choice(batches, size=wanted, replace=False))
    members: list[int] = (chosen[:, None] * T + np.arange(T)).ravel().tolist()
    return members
