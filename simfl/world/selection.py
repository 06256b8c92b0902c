"""Selection schemes: the users of a round, chosen among those who are available, by nothing but the rounds
before and the round's own random stream. A round for which too few are available is skipped."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from simfl.config.blocks import Count, Fraction
from simfl.config.kinds import KindBlock, KindRegistry
from simfl.errors import RunFailed
from simfl.world.participation import Participation, Users, doubled


class Selection(KindBlock):
    """A selection scheme; `select` is all that one of your own needs.

    >>> class Lowest(Selection):
    ...     users: int
    ...     def select(self, available, history, rng):
    ...         return available[: self.users] if len(available) >= self.users else None
    ...     def cohort(self, users):
    ...         return self.users
    >>> Lowest(users=2).chosen([7, 3, 5], Participation(9), np.random.default_rng(0))
    [3, 5]
    """

    needs_battery: ClassVar[bool] = False
    """It reads `history.battery`: a scenario without batteries is refused."""

    @abstractmethod
    def select(
        self, available: Users, history: Participation, rng: np.random.Generator
    ) -> Sequence[int] | Users | None:
        """Return the users of a round, in any order; None or nobody if too few of the distinct, ascending
        `available` are there. history: of earlier rounds; it knows N. rng: the round's own stream."""

    def cohort(self, users: int) -> int:
        """Return the most users that a round can hold, where there are `users` in all."""
        return users

    def usual(self, users: int) -> int:
        """Return how many users a round usually holds; its memory is forecast for so many."""
        return self.cohort(users)

    def enough(self) -> int | None:
        """Return the uploads at which a round's upload ends though more users were chosen; None to wait."""
        return None

    def family(self, users: int) -> int | None:
        """Return the number of sets of users that a round is chosen from, None unless all are of one size."""
        return None

    def needed(self) -> str:
        """Return what a round needs, in words, where the number of available users does not decide alone."""
        return ""

    def batches(self) -> tuple[int, str]:
        """Return T, if users k T .. (k + 1) T - 1 are a batch, and what becomes of one that loses a member
        once it is chosen: keep, drop or refuse."""
        return 1, "keep"

    def problems(self, users: int) -> Iterator[tuple[str, str]]:
        """Yield what does not fit so many users, as (key, or nothing for all of them, message)."""
        yield from ()

    def chosen(
        self, available: ArrayLike, history: Participation, rng: np.random.Generator
    ) -> list[int] | None:
        """Return what `select` does, ascending, as plain integers; None for nobody. RunFailed if somebody in
        it is not available, or is there twice."""
        here = np.sort(np.asarray(available, np.int64))
        found = self.select(here, history, rng)
        if found is None or not len(found):
            return None
        picked = np.sort(np.asarray(found))
        wrong = [f"user {user} is not available" for user in np.setdiff1d(picked, here)]
        wrong += [f"user {user} is chosen twice" for user in doubled(picked)]
        if wrong:
            raise RunFailed(f"selection {type(self).__name__}: {wrong[0]}")
        members: list[int] = picked.tolist()
        return members


class All(Selection):
    """Everyone who is available."""

    kind: Literal["all"] = "all"

    def select(self, available: Users, history: Participation, rng: np.random.Generator) -> Users:
        return available


class _OfOneSize(Selection):
    """K users in every round."""

    main_key = "users"
    later: ClassVar[dict[str, Any]] = {}
    """Keys that there were not always, with their defaults: left out where nothing else is given, so that a
    run says what it said before there were any."""
    users: Count
    """K, the users of a round."""

    @model_serializer(mode="wrap")
    def _as_before(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        return {k: value for k, value in written.items() if k not in self.later or value != self.later[k]}

    def cohort(self, users: int) -> int:
        return self.users

    def family(self, users: int) -> int | None:
        return math.comb(users, self.users)

    def problems(self, users: int) -> Iterator[tuple[str, str]]:
        if self.users > users:
            yield "users", f"users={self.users} must not be above population.users={users}"


class _OverSelected(_OfOneSize):
    """K users, or more of whom K are enough (Bonawitz 2019; FedScale chooses 1.3 K): the upload ends with the
    K-th, and the rest is told so."""

    later = {"over": None}
    over: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] | None = None
    """Chooses ceil(K x over) users, or all available if fewer; K uploads are enough, and the rest is told."""

    def cohort(self, users: int) -> int:
        return self.users if self.over is None else math.ceil(self.users * Decimal(str(self.over)))

    def enough(self) -> int | None:
        return self.users if self.cohort(0) > self.users else None

    def problems(self, users: int) -> Iterator[tuple[str, str]]:
        yield from super().problems(users)
        if self.users <= users < self.cohort(users):
            many = f"users={self.users} x over={self.over:g} = {self.cohort(users)}"
            yield "over", f"{many} must not be above population.users={users}"


class Random(_OverSelected):
    """K = `users` of the available, uniformly without replacement (FedAvg, McMahan 2017, Algorithm 1)."""

    kind: Literal["random"] = "random"

    def select(self, available: Users, history: Participation, rng: np.random.Generator) -> Users | None:
        if available.size < self.users:
            return None
        return rng.choice(available, size=min(self.cohort(0), available.size), replace=False)


class Charged(_OfOneSize):
    """K = `users` of the available whose batteries are at `least` or above, uniformly without replacement."""

    main_key = ""
    kind: Literal["charged"] = "charged"
    least: Fraction
    """The least level of a battery, as a fraction of its capacity."""
    needs_battery: ClassVar[bool] = True

    def select(self, available: Users, history: Participation, rng: np.random.Generator) -> Users | None:
        if history.battery is None:
            raise RunFailed("selection charged: no device has a battery")
        charged = available[history.battery[available] >= self.least]
        return Random(users=self.users).select(charged, history, rng)

    def needed(self) -> str:
        return f"{self.users} with a battery at {self.least:.0%} or above"


class WeightedRandom(_OverSelected):
    """The K = `users` of the available that took part least often, ties at random (Multi-RoundSecAgg section
    3.3, "Random Weighted Selection")."""

    kind: Literal["weighted_random"] = "weighted_random"

    def select(self, available: Users, history: Participation, rng: np.random.Generator) -> Users | None:
        if available.size < self.users:
            return None
        k = min(self.cohort(0), available.size)
        frequency = history.counts[available]
        bar = np.partition(frequency, k - 1)[k - 1]  # of the K-th least: the rest is drawn among its equals
        least = available[frequency < bar]
        drawn = rng.choice(available[frequency == bar], size=k - least.size, replace=False)
        return np.concatenate([least, drawn])


class Bernoulli(Selection):
    """Each of the available with `probability`, independently (Multi-RoundSecAgg App. G, scheme 2).
    K / (N (1 - p)) gives K of N users on average, each of whom is away with p."""

    main_key = "probability"
    kind: Literal["bernoulli"] = "bernoulli"
    probability: Annotated[Fraction, Field(gt=0)]
    """Of each available user."""

    def select(self, available: Users, history: Participation, rng: np.random.Generator) -> Users:
        chosen: Users = available[rng.random(available.size) < self.probability]
        return chosen

    def usual(self, users: int) -> int:
        return math.ceil(users * self.probability)


class MultiRound(_OfOneSize):
    """K = `users` in K / T batches of T users that always take part together (Multi-RoundSecAgg, Algorithms
    1 and 2): the batch that took part least often and others at random, or with `fair: false` all at random
    (lambda = 1 and 0).

    Users 0 .. T - 1 are the first batch, T .. 2 T - 1 the next, and so on. So no linear combination of the
    rounds' sums tells two users of a batch apart, in however many rounds (Theorem 1).
    """

    main_key = ""
    later = {"broken_batch": "keep"}
    kind: Literal["multi_round"] = "multi_round"
    users: Count
    """K, a multiple of T."""
    T: Count
    """The users of a batch, who take part together or not at all."""
    fair: bool = True
    """Prefers the batch that took part least often."""
    broken_batch: Literal["keep", "drop", "refuse"] = "keep"
    """A batch that loses a member once chosen: the rest counts, is left out, or users end the round."""

    def select(self, available: Users, history: Participation, rng: np.random.Generator) -> Users | None:
        """Return the K users of K / T batches; None if fewer are wholly available. Takes time O(N).

        The C(N/T, K/T) rows of Algorithm 1's family B are never listed: those that are available are exactly
        the unions of K / T wholly available batches. lambda = 0, for equal drop-out probabilities: every such
        row equally likely. lambda = 1: uniform among those that hold the user l_min of least frequency.
        Algorithm 2 takes l_min over all available users; a batch-mate of that user may be away, and then no
        available row holds it. Here it is taken over the users of the wholly available batches, and of
        several such batches one is drawn uniformly.
        """
        N, T = history.users, self.T
        check_batches(N, self.users, T)
        here = np.zeros(N, bool)
        here[available] = True
        whole = np.flatnonzero(here.reshape(-1, T).all(axis=1))
        wanted = self.users // T
        if whole.size < wanted:
            return None
        if self.fair:
            frequency = history.counts.reshape(-1, T)[whole].min(axis=1)
            least = np.flatnonzero(frequency == frequency.min())
            first = least[rng.integers(least.size)]
            others = rng.choice(whole.size - 1, size=wanted - 1, replace=False)
            chosen = whole[np.append(others + (others >= first), first)]
        else:
            chosen = rng.choice(whole, size=wanted, replace=False)
        members: Users = (chosen[:, None] * T + np.arange(T)).ravel()
        return members

    def batches(self) -> tuple[int, str]:
        return self.T, self.broken_batch

    def needed(self) -> str:
        batches = self.users // self.T
        return f"{batches} whole batch{'es' * (batches > 1)} of {self.T}"

    def family(self, users: int) -> int | None:
        """Return R_BP = C(N / T, K / T) (Multi-RoundSecAgg eq. 8)."""
        return math.comb(users // self.T, self.users // self.T)

    def problems(self, users: int) -> Iterator[tuple[str, str]]:
        yield from super().problems(users)
        try:
            check_batches(users, self.users, self.T)
        except ValueError as error:
            if self.users <= users:
                yield "", str(error)


class Partition(_OfOneSize):
    """One of N / K fixed groups of K = `users`, wholly available, that took part least often
    (Multi-RoundSecAgg section 3.3, "User Partitioning"): `multi_round` with T = K."""

    kind: Literal["partition"] = "partition"

    def select(self, available: Users, history: Participation, rng: np.random.Generator) -> Users | None:
        return MultiRound(users=self.users, T=self.users).select(available, history, rng)

    def needed(self) -> str:
        return f"1 whole group of {self.users}"

    def family(self, users: int) -> int | None:
        return users // self.users

    def problems(self, users: int) -> Iterator[tuple[str, str]]:
        return MultiRound(users=self.users, T=self.users).problems(users)


_KINDS = (All, Random, Charged, WeightedRandom, Partition, Bernoulli, MultiRound)
SELECTION = KindRegistry("selection", Selection, _KINDS, "selection")  # type: ignore[type-abstract]

if TYPE_CHECKING:
    AnySelection = Selection
else:
    AnySelection = SELECTION.annotation()


def check_batches(users: int, k: int, T: int) -> None:
    """Raise a ValueError with the nearest values that work, unless T divides k and users, and k <= users."""
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
