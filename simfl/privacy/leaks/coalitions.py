"""Coalitions of users: who may collude, all of them, or some where all are too many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb

from simfl.errors import BadInput

MOST_COALITIONS = 100_000  # of a round: each costs about a millisecond and 100 bytes


def check_colluders(colluders: int, users: int) -> None:
    """Raise BadInput for a coalition that leaves no honest user."""
    if not 0 <= colluders < users:
        raise BadInput(
            f"colluders={colluders} must be at least 0 and at most {users - 1} of {users} users: "
            "one of them is honest"
        )


def coalitions_of(users: int, sizes: Iterable[int]) -> dict[int, list[tuple[int, ...]]]:
    """Return all coalitions of these sizes. BadInput, before any is put together, if they are too many."""
    sizes = list(sizes)
    number = sum(comb(users, size) for size in sizes)
    if number > MOST_COALITIONS:
        raise BadInput(
            f"colluders={max(sizes)} of {users} users are {number:,} coalitions, and at most "
            f"{MOST_COALITIONS:,} are looked at: lower colluders, or users"
        )
    return {size: list(combinations(range(users), size)) for size in sizes}


def up_to(colluders: int, users: int) -> dict[int, list[tuple[int, ...]]]:
    """Return all coalitions of at most so many users; BadInput if these are all users, or too many."""
    check_colluders(colluders, users)
    return coalitions_of(users, range(colluders + 1))


def spread(users: Sequence[int], size: int, most: int) -> list[tuple[int, ...]]:
    """Return at most so many coalitions of a size, evenly spread over all of them in their order.

    >>> spread(range(4), 2, 3)
    [(0, 1), (0, 3), (1, 3)]
    """
    number = comb(len(users), size)
    return [_nth(users, size, k) for k in range(0, number, -(-number // most))]


def _nth(users: Sequence[int], size: int, k: int) -> tuple[int, ...]:
    """Return the k-th coalition in the order of `itertools.combinations`."""
    chosen = list[int]()
    for at, user in enumerate(users):
        if len(chosen) == size:
            break
        with_user = comb(len(users) - at - 1, size - len(chosen) - 1)
        if k < with_user:
            chosen.append(user)
        else:
            k -= with_user
    return tuple(chosen)
