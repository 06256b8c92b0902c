"""Training samples dealt to users.

The law: every sample is dealt exactly once. A result is one ascending array of sample numbers a user.
"""

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]


def iid(y: I64, users: int, rng: np.random.Generator) -> list[I64]:
    """Samples dealt at random, equally: sizes differ by one at most (McMahan 2017, section 3).

    y: labels [n]. With more users than samples some users hold nothing, and their updates are zero.
    ValueError if users < 1.
    """
    _at_least_one(users)
    return [np.sort(part) for part in np.array_split(rng.permutation(len(y)), users)]


def dirichlet(y: I64, users: int, beta: float, rng: np.random.Generator, min_samples: int = 1) -> list[I64]:
    """Each class is dealt in proportions p ~ Dir(beta, ..., beta) over the users (Yurochkin et al. 2019).

    y: labels [n]. Small beta: few classes a user; large beta: nearly IID. Users left with fewer than
    `min_samples` are filled up, one sample at a time, from whoever then holds the most. ValueError if
    users < 1 or beta <= 0, or if users * min_samples samples do not exist.
    """
    _at_least_one(users)
    if not beta > 0:
        raise ValueError(f"beta={beta} must be above 0")
    if users * min_samples > len(y):
        raise ValueError(f"users={users} times min_samples={min_samples} is above the {len(y)} samples")
    dealt: list[list[I64]] = [[] for _ in range(users)]
    for label in np.unique(y):
        samples = rng.permutation(np.flatnonzero(y == label))
        shares = rng.dirichlet(np.full(users, beta)).cumsum()[:-1]
        cuts = np.minimum(shares * len(samples), len(samples)).astype(np.int64)
        for mine, part in zip(dealt, np.split(samples, cuts), strict=True):
            mine.append(part)
    # Shuffled, so that what a user gives away is of no particular class.
    hands = [rng.permutation(np.concatenate(mine)).tolist() for mine in dealt]
    _fill_up(hands, min_samples)
    return [np.sort(np.array(hand, np.int64)) for hand in hands]


def _fill_up(hands: list[list[int]], min_samples: int) -> None:
    sizes = np.array([len(hand) for hand in hands])
    for user in np.flatnonzero(sizes < min_samples):
        while sizes[user] < min_samples:
            richest = int(sizes.argmax())
            hands[user].append(hands[richest].pop())
            sizes[user] += 1
            sizes[richest] -= 1


def _at_least_one(users: int) -> None:
    if users < 1:
        raise ValueError(f"users={users} must be at least 1")
