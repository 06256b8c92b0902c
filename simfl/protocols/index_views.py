"""Lists of users that many messages share, and rows that are found by user.

The law: on a complete graph everyone is told the same list, so what is found out about it (where a user
stands, whether it is within another list) is found out once; a list without one of its users, and row numbers
in the order of a list, are views of it. So no round takes a step of Python for each pair of users, unless the
rows of a pair are really worked on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice, repeat
from typing import Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
I64 = NDArray[np.int64]


class View(Sequence[T], Generic[T]):
    """A sequence that is worked out item by item; equal to any sequence of the same items."""

    @abstractmethod
    def at(self, k: int) -> T:
        """Item k, 0 <= k < len."""

    @overload
    def __getitem__(self, k: int) -> T: ...
    @overload
    def __getitem__(self, k: slice) -> Sequence[T]: ...
    def __getitem__(self, k: int | slice) -> T | Sequence[T]:
        if isinstance(k, slice):
            return [self.at(i) for i in range(*k.indices(len(self)))]
        if not -len(self) <= k < len(self):
            raise IndexError(k)
        return self.at(k % len(self))

    def __iter__(self) -> Iterator[T]:
        return map(self.at, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(list(self))


class Lookup(View[T]):
    """find(item) for each of `items`."""

    def __init__(self, items: Sequence[int], find: Callable[[int], T]) -> None:
        self.items, self.find = items, find

    def __len__(self) -> int:
        return len(self.items)

    def at(self, k: int) -> T:
        return self.find(self.items[k])

    def __iter__(self) -> Iterator[T]:
        return map(self.find, self.items)


class Same(View[T]):
    """One value n times."""

    def __init__(self, value: T, n: int) -> None:
        self.value, self.n = value, n

    def __len__(self) -> int:
        return self.n

    def at(self, k: int) -> T:
        return self.value

    def __iter__(self) -> Iterator[T]:
        return repeat(self.value, self.n)


class AllBut(View[int]):
    """The numbers start .. start + n - 1 without start + k.

    >>> list(AllBut(4, 1))
    [0, 2, 3]
    """

    def __init__(self, n: int, k: int, start: int = 0) -> None:
        self.n, self.k, self.start = n, k, start

    def __len__(self) -> int:
        return self.n - 1

    def at(self, k: int) -> int:
        return self.start + k + (k >= self.k)

    def __iter__(self) -> Iterator[int]:
        hole, end = self.start + self.k, self.start + self.n
        return chain(range(self.start, hole), range(hole + 1, end))


class Users(tuple[int, ...]):
    """A list of users that others refer to."""

    @cached_property
    def place(self) -> dict[int, int]:
        """Where each stands; of one that stands twice, the last place."""
        return dict(zip(self, range(len(self)), strict=True))

    @cached_property
    def array(self) -> I64:
        """The list as an array."""
        return np.array(self, np.int64)

    @cached_property
    def distinct(self) -> bool:
        """Whether nobody stands twice."""
        return len(set(self)) == len(self)

    @cached_property
    def _within(self) -> dict[int, tuple[Users, bool]]:
        return {}

    def within(self, others: Users) -> bool:
        """Whether all of them are also there; found out once for each other list."""
        if others is self:
            return True
        if id(others) not in self._within:
            self._within[id(others)] = others, others.place.keys() >= set(self)
        return self._within[id(others)][1]

    def between(self, known: range) -> bool:
        """Whether all of them are in a range of step 1."""
        return not self or (self._least >= known.start and self._largest < known.stop)

    @cached_property
    def _least(self) -> int:
        return min(self)

    @cached_property
    def _largest(self) -> int:
        return max(self)


class Others(View[int]):
    """All of a list of users but one, who stands in it."""

    def __init__(self, users: Users, but: int) -> None:
        self.users, self.but = users, but
        self.k = users.place[but]

    def __len__(self) -> int:
        return len(self.users) - 1

    def __contains__(self, user: object) -> bool:
        return user != self.but and user in self.users.place

    def __iter__(self) -> Iterator[int]:
        return chain(islice(self.users, self.k), islice(self.users, self.k + 1, None))

    def at(self, k: int) -> int:
        return self.users[k + (k >= self.k)]

    def place(self, user: int) -> int:
        """Where a user stands. KeyError if it is not there."""
        place = self.users.place[user]
        if user == self.but:
            raise KeyError(user)
        return place - (place > self.k)


class Holdings:
    """Where the rows about each user are, of many answers at once."""

    def __init__(self, about: Sequence[I64]) -> None:
        """about[a]: whom answer a is about, row by row."""
        sizes = [len(users) for users in about]
        users = np.concatenate(about)
        order = np.argsort(users, kind="stable")
        self._users = users[order]
        self._answer = np.repeat(np.arange(len(about)), sizes)[order]
        self._row = (np.arange(len(users)) - np.repeat(np.cumsum([0, *sizes[:-1]]), sizes))[order]

    def of(self, users: Sequence[int], most: Sequence[int]) -> list[tuple[I64, I64]]:
        """For each user: the first answers, `most` at most, with a row about it, and which row of theirs."""
        starts, ends = (np.searchsorted(self._users, users, side).tolist() for side in ("left", "right"))
        those = [slice(a, min(b, a + t)) for a, b, t in zip(starts, ends, most, strict=True)]
        return [(self._answer[some], self._row[some]) for some in those]


def place(names: Users | Others, user: int) -> int:
    """Where a user stands. KeyError if it is not there."""
    return names.place[user] if isinstance(names, Users) else names.place(user)


def place_in(names: Users | Others) -> Callable[[int], int]:
    """The function that tells where a user stands, which may be asked for many."""
    return names.place.__getitem__ if isinstance(names, Users) else names.place


def users_among(circle: Users, those: Container[int]) -> Users:
    """Those of a circle who are among those; the circle itself if all are."""
    some = Users(filter(those.__contains__, circle))
    return circle if len(some) == len(circle) else some


def closed(others: Sequence[int], user: int) -> Users:
    """Others and the user: the list that they are all others of, if there is one."""
    if isinstance(others, Others) and others.but == user:
        return others.users
    return Users((*others, user))


def rows_of(others: Sequence[int], user: int) -> Callable[[int], int]:
    """The row of each of the others, in their order, and of the user itself, which comes last."""
    names = users_of(others)
    return lambda one: len(names) if one == user else place(names, one)


def users_of(names: Sequence[int]) -> Users | Others:
    """Names as a list that can be referred to: itself if it is one."""
    return names if isinstance(names, Users | Others) else Users(names)


def are_distinct(names: Sequence[int]) -> bool:
    """Whether nobody is named twice."""
    names = users_of(names)
    return names.distinct if isinstance(names, Users) else names.users.distinct


def are_within(names: Sequence[int], known: Container[int]) -> bool:
    """Whether all who are named are known."""
    names = users_of(names)
    base = names if isinstance(names, Users) else names.users
    if isinstance(known, range):
        if base.between(known):
            return True
    elif isinstance(known, Users):
        if base.within(known):
            return True
    elif isinstance(known, Others) and base.within(known.users) and known.but not in names:
        return True
    return all(map(known.__contains__, names))
