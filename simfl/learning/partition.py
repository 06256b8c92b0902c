"""Training samples dealt to users.

The law: every sample is dealt exactly once. The exceptions are in the schemes' names: `natural` leaves out
the samples of users that are not drawn, `shared` deals some samples to everyone. A result is one ascending
array of sample numbers a user.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]


def iid(y: I64, users: int, rng: np.random.Generator) -> list[I64]:
    """Samples dealt at random, equally: sizes differ by one at most (McMahan 2017, section 3).

    y: labels [n]. With more users than samples some users hold nothing, and their updates are zero.
    ValueError if users < 1.
    """
    _at_least_one("users", users)
    return [np.sort(part) for part in np.array_split(rng.permutation(len(y)), users)]


def dirichlet(y: I64, users: int, beta: float, rng: np.random.Generator, min_samples: int = 1) -> list[I64]:
    """Each class is dealt in proportions p ~ Dir(beta, ..., beta) over the users (Yurochkin et al. 2019).

    y: labels [n]. Small beta: few classes a user; large beta: nearly IID. Users left with fewer than
    `min_samples` are filled up, one sample at a time, from whoever then holds the most. ValueError if
    users < 1 or beta <= 0, or if users * min_samples samples do not exist.
    """
    _at_least_one("users", users)
    _enough(len(y), users, min_samples)
    dealt: list[list[I64]] = [[] for _ in range(users)]
    for label in np.unique(y):
        samples = rng.permutation(np.flatnonzero(y == label))
        for mine, part in zip(dealt, _in_proportion(samples, users, beta, rng), strict=True):
            mine.append(part)
    return _filled_up([np.concatenate(mine) for mine in dealt], min_samples, rng)


def quantity_skew(
    y: I64, users: int, beta: float, rng: np.random.Generator, min_samples: int = 1
) -> list[I64]:
    """Samples dealt at random in proportions p ~ Dir(beta, ..., beta): users differ in how much they hold,
    not in the law of their labels (Li et al. 2022, NIID-Bench, section "Quantity Skew").

    y: labels [n]. Small beta: few users hold nearly everything; large beta: equal sizes. Users left with
    fewer than `min_samples` are filled up as by `dirichlet`. ValueError as there.
    """
    _at_least_one("users", users)
    _enough(len(y), users, min_samples)
    parts = _in_proportion(rng.permutation(len(y)), users, beta, rng)
    return _filled_up(parts, min_samples, rng)


def shards(
    y: I64, users: int, shards_per_user: int, rng: np.random.Generator, min_samples: int = 1
) -> list[I64]:
    """Samples sorted by label and cut into shards, which are dealt at random, `shards_per_user` to each
    (two in McMahan 2017, section 3; one in Multi-RoundSecAgg, App. E, MNIST).

    y: labels [n]; ties are sorted at random. Sizes of shards differ by one at most. A shard holds one label
    unless it lies across the border of two, so all do if the classes' sizes are multiples of a shard's.
    Users left with fewer than `min_samples` are filled up as by `dirichlet`. ValueError if users < 1 or
    shards_per_user < 1, or if there are fewer samples than shards or than users * min_samples.
    """
    _at_least_one("users", users)
    _at_least_one("shards_per_user", shards_per_user)
    _enough(len(y), users, min_samples)
    count = users * shards_per_user
    if count > len(y):
        raise ValueError(
            f"users={users} times shards_per_user={shards_per_user} is above the {len(y)} samples"
        )
    cut = np.array_split(_sorted_by_label(y, rng.permutation(len(y))), count)
    hands = rng.permutation(count).reshape(users, shards_per_user)
    parts = [np.concatenate([cut[shard] for shard in hand]) for hand in hands]
    return _filled_up(parts, min_samples, rng)


def natural(owner: I64 | None, users: int, rng: np.random.Generator) -> list[I64]:
    """The data set's own users, such as the writers of FEMNIST (LEAF; Caldas et al. 2018).

    owner: the natural user of each sample [n], any numbers. If there are more of them than `users`, those
    who take part are drawn at random, and the samples of the others are not used; ours keep their order.
    ValueError if users < 1, if there are fewer natural users, or none at all (None).
    """
    _at_least_one("users", users)
    if owner is None:
        raise ValueError("the data set has no natural users: its samples have no owner")
    order = np.argsort(owner, kind="stable")
    names, starts = np.unique(owner[order], return_index=True)
    if len(names) < users:
        raise ValueError(f"users={users} is above the {len(names)} natural users of the data set")
    drawn = np.sort(rng.choice(len(names), users, replace=False))
    ends = np.append(starts[1:], len(order))
    return [order[starts[k] : ends[k]] for k in drawn]


def shared(y: I64, users: int, shared_samples: int, rng: np.random.Generator) -> list[I64]:
    """A globally shared set G that everyone holds, and a one-label shard of the rest D each (Zhao et al.
    2018, section 4; Multi-RoundSecAgg, App. E, CIFAR-10: |G| = 200, 120 shards of 415).

    y: labels [n]. G has `shared_samples` samples, drawn at random with as many of each class (to within one,
    as long as a class lasts). Each sample of D is dealt once, by `shards` with one shard a user. ValueError
    if users < 1, or if shared_samples < 0 or leaves fewer samples than users.
    """
    _at_least_one("users", users)
    if shared_samples < 0:
        raise ValueError(f"shared_samples={shared_samples} must not be negative")
    left = len(y) - shared_samples
    if left < users:
        raise ValueError(
            f"shared_samples={shared_samples} of {len(y)} samples leave {max(0, left)} for users={users}"
        )
    dealt = _round_the_classes(y, rng)
    everyone, rest = dealt[:shared_samples], np.sort(dealt[shared_samples:])
    return [np.sort(np.append(everyone, rest[part])) for part in shards(y[rest], users, 1, rng)]


def label_counts(y: I64, parts: Sequence[I64], classes: int) -> I64:
    """How many samples of each label each user holds, [users, classes].

    y: labels [n] in 0 .. classes - 1, otherwise ValueError. parts: sample numbers, an array a user.
    """
    if len(y) and not 0 <= y.min() <= y.max() < classes:
        raise ValueError(f"labels {y.min()} .. {y.max()} must lie in 0 .. classes - 1 = {classes - 1}")
    counts = [np.bincount(y[part], minlength=classes) for part in parts]
    return np.array(counts, np.int64).reshape(len(parts), classes)


def _in_proportion(samples: I64, users: int, beta: float, rng: np.random.Generator) -> list[I64]:
    """Samples cut, in their order, in proportions p ~ Dir(beta, ..., beta)."""
    if not 0 < beta < np.inf:
        raise ValueError(f"beta={beta} must be above 0 and finite")
    shares = rng.dirichlet(np.full(users, beta)).cumsum()[:-1]
    cuts = np.minimum(shares * len(samples), len(samples)).astype(np.int64)
    return np.split(samples, cuts)


def _sorted_by_label(y: I64, samples: I64) -> I64:
    """Samples sorted by label, those of one label in the order that they had."""
    return samples[np.argsort(y[samples], kind="stable")]


def _round_the_classes(y: I64, rng: np.random.Generator) -> I64:
    """All samples in a random order that takes one of each class in turn, as long as a class lasts."""
    mixed = rng.permutation(len(y))
    by_label = np.argsort(y[mixed], kind="stable")
    _, starts, sizes = np.unique(y[mixed][by_label], return_index=True, return_counts=True)
    turn = np.empty(len(y), np.int64)
    turn[by_label] = np.arange(len(y)) - np.repeat(starts, sizes)
    return mixed[np.argsort(turn, kind="stable")]


def _filled_up(parts: list[I64], min_samples: int, rng: np.random.Generator) -> list[I64]:
    """Users with fewer than `min_samples` are given some, one at a time, of whoever then holds the most."""
    # Shuffled, so that what a user gives away is of no particular class.
    hands = [rng.permutation(part).tolist() for part in parts]
    sizes = np.array([len(hand) for hand in hands])
    for user in np.flatnonzero(sizes < min_samples):
        while sizes[user] < min_samples:
            richest = int(sizes.argmax())
            hands[user].append(hands[richest].pop())
            sizes[user] += 1
            sizes[richest] -= 1
    return [np.sort(np.array(hand, np.int64)) for hand in hands]


def _enough(samples: int, users: int, min_samples: int) -> None:
    if users * min_samples > samples:
        raise ValueError(f"users={users} times min_samples={min_samples} is above the {samples} samples")


def _at_least_one(what: str, count: int) -> None:
    if count < 1:
        raise ValueError(f"{what}={count} must be at least 1")
