"""Training samples dealt to users: each exactly once, but `natural` leaves out those of users that are not
drawn, `few` those beyond so many of each user, and `shared` deals some to everyone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from simfl.config.blocks import Count, Positive
from simfl.config.kinds import KindBlock, KindRegistry
from simfl.learning.data.dataset import I64, Split

HAND_BYTES = 900
"""Of a user whose samples are not one piece of an array, besides their numbers."""
USERS_CHECKED_AT_ONCE = 4096


class Partition(KindBlock):
    """A rule by which users share the training samples; `deal` is all that one of your own needs.

    >>> class InTurn(Partition):
    ...     def deal(self, split, users, rng):
    ...         return [range(user, len(split.y_train), users) for user in range(users)]
    >>> y = np.array([0, 1, 0, 1, 1])
    >>> [part.tolist() for part in InTurn().dealt(Split(y[:, None], y, y[:, None], y, 2), 2, None)]
    [[0, 2, 4], [1, 3]]
    """

    one_piece: ClassVar[bool] = False
    """Each user's samples are one piece of a single array, so that they take little to deal out."""

    @abstractmethod
    def deal(self, split: Split, users: int, rng: np.random.Generator) -> Sequence[ArrayLike]:
        """Return the numbers of each user's samples, in any order; a ValueError tells why there are none.

        Labels are `split.y_train` [n], natural users `split.owner` [n] or None; `rng` is the partition's own.
        """

    def hand_bytes(self, classes: int) -> int:
        """Return a user's memory besides the numbers of its samples."""
        return 0 if self.one_piece else HAND_BYTES

    def dealt(self, split: Split, users: int, rng: np.random.Generator) -> list[I64]:
        """Return `deal`'s hands, ascending. ValueError: too few, too many, no such sample, one held twice."""
        whose, n = f"partition {type(self).__name__}", len(split.y_train)
        parts = [np.sort(np.asarray(part, np.int64)) for part in self.deal(split, users, rng)]
        if len(parts) != users:
            raise ValueError(f"{whose} deals to {len(parts)} users instead of {users}")
        # Many users at once: a check of each alone takes longer than dealing to a million of them.
        for first in range(0, users, USERS_CHECKED_AT_ONCE):
            hands = parts[first : first + USERS_CHECKED_AT_ONCE]
            user = np.repeat(np.arange(len(hands)), [len(hand) for hand in hands])
            numbers = np.concatenate(hands)
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < n:
                raise ValueError(f"{whose} deals samples {numbers.min()} .. {numbers.max()} of 0 .. {n - 1}")
            twice = np.flatnonzero((np.diff(numbers) == 0) & (np.diff(user) == 0))
            if twice.size:
                at = twice[0]
                raise ValueError(f"{whose} deals sample {numbers[at]} twice to user {first + user[at]}")
        return parts


class Iid(Partition):
    """Samples dealt at random, equally: sizes differ by one at most (McMahan 2017, section 3).

    With more users than samples some users hold nothing, and their updates are zero.
    """

    one_piece = True
    kind: Literal["iid"] = "iid"

    def deal(self, split: Split, users: int, rng: np.random.Generator) -> list[I64]:
        return np.array_split(rng.permutation(len(split.y_train)), users)


class Few(Partition):
    """So many samples to each user, drawn at random; nobody has the others, of which an attacker may have
    some (CCESA G.2.2 trains on 5,000 to 50,000 of CIFAR-10's)."""

    one_piece = True
    main_key = "samples"
    kind: Literal["few"] = "few"
    samples: Count
    """Samples of each user."""

    def deal(self, split: Split, users: int, rng: np.random.Generator) -> list[I64]:
        n = len(split.y_train)
        if users * self.samples > n:
            raise ValueError(f"users={users} times samples={self.samples} is above the {n} samples")
        return np.split(rng.permutation(n)[: users * self.samples], users)


class _Skewed(Partition):
    """Users hold different amounts, drawn from a Dirichlet distribution, of each label or of all samples."""

    by_label: ClassVar[bool]
    main_key = "beta"
    beta: Positive
    """The smaller, the more uneven."""
    min_samples: Count = 1
    """The least number of samples of a user."""

    def deal(self, split: Split, users: int, rng: np.random.Generator) -> list[list[int]]:
        y, n = split.y_train, len(split.y_train)
        if users * self.min_samples > n:
            raise ValueError(f"users={users} times min_samples={self.min_samples} is above the {n} samples")
        groups = [np.flatnonzero(y == label) for label in np.unique(y)] if self.by_label else [np.arange(n)]
        cut = [self._in_proportion(rng.permutation(group), users, rng) for group in groups]
        # Shuffled, so that what a user gives away is of no particular class.
        hands = [rng.permutation(np.concatenate(parts)).tolist() for parts in zip(*cut, strict=True)]
        sizes = np.array([len(hand) for hand in hands])
        for user in np.flatnonzero(sizes < self.min_samples):
            while sizes[user] < self.min_samples:
                richest = int(sizes.argmax())
                hands[user].append(hands[richest].pop())
                sizes[user] += 1
                sizes[richest] -= 1
        return hands

    def _in_proportion(self, samples: I64, users: int, rng: np.random.Generator) -> list[I64]:
        """Return samples cut, in their order, in proportions p ~ Dir(beta, ..., beta)."""
        shares = rng.dirichlet(np.full(users, self.beta)).cumsum()[:-1]
        return np.split(samples, np.minimum(shares * len(samples), len(samples)).astype(np.int64))


class Dirichlet(_Skewed):
    """Label shares per user drawn from a Dirichlet distribution with parameter beta (Yurochkin et al. 2019).

    Small beta: few classes a user; large beta: nearly IID. Users with fewer than `min_samples` are filled
    up, one sample at a time, from whoever then holds the most.
    """

    kind: Literal["dirichlet"] = "dirichlet"
    by_label = True

    def hand_bytes(self, classes: int) -> int:
        return HAND_BYTES + 140 * classes


class QuantitySkew(_Skewed):
    """Samples dealt at random, in sizes drawn from a Dirichlet distribution with parameter beta: users differ
    in how much they hold, not in the law of their labels (Li et al. 2022, NIID-Bench, "Quantity Skew").

    Small beta: few users hold nearly everything; large beta: equal sizes. Users are filled up as by
    `dirichlet`.
    """

    kind: Literal["quantity_skew"] = "quantity_skew"
    by_label = False


class Shards(Partition):
    """Samples sorted by label and cut into shards, which are dealt at random, `per_user` to each (two in
    McMahan 2017, section 3; one in Multi-RoundSecAgg, App. E, MNIST).

    Sizes of shards differ by one at most. A shard holds one label unless it lies across the border of two, so
    all do if the classes' sizes are multiples of a shard's.
    """

    main_key = "per_user"
    kind: Literal["shards"] = "shards"
    per_user: Count = 2
    """Shards of each user."""

    def deal(self, split: Split, users: int, rng: np.random.Generator) -> list[I64]:
        return _shards(split.y_train, users, self.per_user, rng)


class Natural(Partition):
    """The data set's own users, such as the writers of FEMNIST (LEAF; Caldas et al. 2018).

    If there are more of them than users, those who take part are drawn at random, and the samples of the
    others are not used; ours keep their order.
    """

    one_piece = True
    kind: Literal["natural"] = "natural"

    def deal(self, split: Split, users: int, rng: np.random.Generator) -> list[I64]:
        owner = split.owner
        if owner is None:
            raise ValueError("the data set has no natural users: its samples have no owner")
        order = np.argsort(owner, kind="stable")
        names, starts = np.unique(owner[order], return_index=True)
        if len(names) < users:
            raise ValueError(f"users={users} is above the {len(names)} natural users of the data set")
        parts = np.split(order, starts[1:])
        return [parts[k] for k in np.sort(rng.choice(len(names), users, replace=False))]


class Shared(Partition):
    """`samples` that every user has, and a one-label shard of the rest each (Zhao et al. 2018, section 4;
    Multi-RoundSecAgg, App. E, CIFAR-10: 200 shared, 120 shards of 415).

    The shared ones are drawn at random with as many of each class (to within one, as long as a class lasts).
    """

    main_key = "samples"
    kind: Literal["shared"] = "shared"
    samples: Count
    """Samples that every user has."""

    def deal(self, split: Split, users: int, rng: np.random.Generator) -> list[I64]:
        y = split.y_train
        left = len(y) - self.samples
        if left < users:
            raise ValueError(f"shared samples={self.samples} of {len(y)} leave {max(0, left)} for {users=}")
        # A random order that takes one of each class in turn: sorted by its place in its class.
        mixed = rng.permutation(len(y))
        by_label = np.argsort(y[mixed], kind="stable")
        _, starts, sizes = np.unique(y[mixed][by_label], return_index=True, return_counts=True)
        turn = np.empty(len(y), np.int64)
        turn[by_label] = np.arange(len(y)) - np.repeat(starts, sizes)
        dealt = mixed[np.argsort(turn, kind="stable")]
        everyone, rest = dealt[: self.samples], np.sort(dealt[self.samples :])
        return [np.append(everyone, rest[part]) for part in _shards(y[rest], users, 1, rng)]

    def hand_bytes(self, classes: int) -> int:
        return HAND_BYTES + 16 * self.samples


def _shards(y: I64, users: int, per_user: int, rng: np.random.Generator) -> list[I64]:
    """Return samples sorted by label, ties at random, cut into shards, which are dealt at random."""
    count = users * per_user
    if count > len(y):
        raise ValueError(f"users={users} times per_user={per_user} is above the {len(y)} samples")
    mixed = rng.permutation(len(y))
    cut = np.array_split(mixed[np.argsort(y[mixed], kind="stable")], count)
    hands = rng.permutation(count).reshape(users, per_user)
    return [np.concatenate([cut[shard] for shard in hand]) for hand in hands]


_OURS = (Iid, Few, Dirichlet, Shards, Natural, Shared, QuantitySkew)
PARTITION = KindRegistry("partition", Partition, _OURS, "partition")  # type: ignore[type-abstract]

if TYPE_CHECKING:
    AnyPartition = Partition
else:
    AnyPartition = PARTITION.annotation()


def label_counts(y: I64, parts: Sequence[I64], classes: int) -> I64:
    """Return how many samples of each label 0 .. classes - 1 each user holds, [users, classes].

    >>> label_counts(np.array([0, 2, 2]), [np.array([0, 1]), np.array([2])], classes=3).tolist()
    [[1, 0, 1], [0, 0, 1]]
    """
    if len(y) and not 0 <= y.min() <= y.max() < classes:
        raise ValueError(f"labels {y.min()} .. {y.max()} must lie in 0 .. classes - 1 = {classes - 1}")
    counts = [np.bincount(y[part], minlength=classes) for part in parts]
    return np.array(counts, np.int64).reshape(len(parts), classes)
