"""Numbers of many users, each found when it is looked at.

Invariant: a user's number is the same whether it is looked at alone, in any order, or with all others. A
population of up to `MANY` users has plain arrays; of more users, one that is never looked at costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

MANY = 65_536
"""Users above which numbers are found later."""
BLOCK = 4_096
"""Users whose numbers are found together. A stream's state before each block takes a kilobyte."""
FEW = 1 / 32
"""Share of users that may be looked at one by one: beyond it an array of all takes less memory."""

Find = Callable[[int, int], NDArray[Any]]
"""(first user, a multiple of BLOCK; number of users) -> their numbers."""


class LaterNumbers:
    """A number of each of N users, found when it is looked at.

    Args:
        users: N.
        find: Finds the numbers of some users.

    >>> squares = LaterNumbers(100_000, lambda first, size: np.arange(first, first + size) ** 2)
    >>> len(squares), squares.item(300), np.asarray(squares)[300].item()
    (100000, 90000, 90000)
    """

    def __init__(self, users: int, find: Find) -> None:
        self.users, self.find = users, find
        self._seen: dict[int, Any] = {}
        self._all: NDArray[Any] | None = None
        self._latest: tuple[int, NDArray[Any]] = -1, np.empty(0)
        """The block that was found last, with its first user."""

    def __len__(self) -> int:
        return self.users

    def item(self, user: int) -> Any:
        """Return a user's number, as a plain number."""
        if self._all is not None:
            return self._all.item(user)
        number = self._seen.get(user)
        if number is None:
            if len(self._seen) > FEW * self.users:
                self._all, self._seen = np.asarray(self), {}
                return self._all.item(user)
            number = self._seen[user] = self[user].item()
        return number

    def __getitem__(self, user: int) -> Any:
        """Return a user's number, or its row of numbers; ascending users are found fast."""
        within = user % BLOCK
        first = user - within
        if first != self._latest[0]:
            self._latest = first, self.find(first, min(BLOCK, self.users - first))
        return self._latest[1][within]

    def __rmul__(self, factor: float) -> LaterNumbers:
        return LaterNumbers(self.users, lambda first, size: factor * self.find(first, size))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        numbers = np.concatenate(list(blocks(self)))
        return numbers if dtype is None else numbers.astype(dtype, copy=False)


Numbers: TypeAlias = NDArray[Any] | LaterNumbers
"""A number of each user, [users]: `.item(user)` is one, `numpy.asarray` all of them."""


def blocks(numbers: Numbers) -> Iterator[NDArray[Any]]:
    """Yield the numbers of all users, a block after the other."""
    for first in range(0, len(numbers), BLOCK):
        yield block(numbers, first, min(BLOCK, len(numbers) - first))


def alike(numbers: Numbers) -> NDArray[Any]:
    """Return numbers with the mean, the median and the extremes of all: one, if all are equal."""
    numbers = np.asarray(numbers)
    return numbers[:1] if numbers.strides == (0,) else numbers


def first(numbers: Numbers, users: int = MANY) -> NDArray[Any]:
    """Return the numbers of the first users, by whole blocks."""
    return np.concatenate(list(islice(blocks(numbers), -(-users // BLOCK))))


def block(numbers: Numbers, first: int, size: int) -> NDArray[Any]:
    """Return the numbers of `size` users from `first` on, which of `LaterNumbers` begins a block."""
    if isinstance(numbers, LaterNumbers):
        return numbers.find(first, size)
    return numbers[first : first + size]


def later(users: int, find: Find) -> Numbers:
    """Return the numbers of all users, found now if they are few."""
    return LaterNumbers(users, find) if users > MANY else find(0, users)


def equal(users: int, number: float) -> NDArray[Any]:
    """Return the same number for each user, in the memory of one."""
    return np.broadcast_to(np.asarray(number), users)


def drawn(
    users: int, rng: np.random.Generator, draw: Callable[[np.random.Generator, int], NDArray[Any]]
) -> Numbers:
    """Return numbers that one stream draws for users in their order.

    Args:
        users: Their number.
        rng: The stream, which draws nothing else.
        draw: Draws the next numbers, each by itself.

    >>> few, many = (drawn(n, np.random.default_rng(1), lambda rng, n: rng.random(n)) for n in (5, 10**6))
    >>> few.item(4) == many.item(4)
    True
    """
    generator: Any = rng.bit_generator
    states: list[Any] = [generator.state]

    def find(first: int, size: int) -> NDArray[Any]:
        number = first // BLOCK
        # Draws follow each other: the stream's state before a block is that after the one before it.
        while len(states) <= number:
            find(BLOCK * (len(states) - 1), BLOCK)
        generator.state = states[number]
        numbers = draw(rng, size)
        if number + 1 == len(states):
            states.append(generator.state)
        return numbers

    return later(users, find)
