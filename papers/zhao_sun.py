"""Zhao and Sun's scheme (2021) beside LightSecAgg: what is generated, and what a user stores.

The scheme, as LightSecAgg App. C has it: a trusted party draws a mask of U - T symbols for each of N
users, and for each set U1 of at least U users the sum of its members' masks is padded by T random symbols,
coded by an MDS matrix into |U1| symbols, and dealt out, one to each member. Any U members of the set of
survivors then give the sum of its masks in one step. A symbol is a vector of d / (U - T) elements of F_q.

The formulas are those of LightSecAgg Table 6; `deal` and `share_lightsecagg` really generate and count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from simfl.crypto import mds
from simfl.crypto.field import matmul
from simfl.random_streams import Streams

Q = 2**32 - 5
LENGTH = 2
"""Elements of a symbol: nothing that is counted depends on it."""

A32 = NDArray[np.uint32]
Users = tuple[int, ...]


def randomness(N: int, U: int, T: int) -> int:
    """N (U - T) + T sum_{u=U}^N C(N, u): symbols that the trusted party draws (Table 6)."""
    return N * (U - T) + T * sum(comb(N, u) for u in range(U, N + 1))


def storage(N: int, U: int, T: int) -> int:
    """U - T + sum_{u=U}^N C(N, u) u / N: a user holds (Table 6), as C(N, u) u / N = C(N - 1, u - 1)."""
    return U - T + sum(comb(N - 1, u - 1) for u in range(U, N + 1))


def lightsecagg_randomness(N: int, U: int, T: int) -> int:
    """N U: symbols that all users together draw in LightSecAgg (Table 6)."""
    return N * U


def lightsecagg_storage(N: int, U: int, T: int) -> int:
    """U - T + N: symbols that a user holds in LightSecAgg (Table 6)."""
    return U - T + N


@dataclass(frozen=True)
class Dealt:
    """What the trusted party dealt out. drawn: how many symbols it drew; masks [N, U - T, LENGTH]; shares:
    for each set and member, its symbol [LENGTH]."""

    U: int
    T: int
    drawn: int
    masks: A32
    shares: dict[tuple[Users, int], A32]

    @property
    def stored(self) -> int:
        """The most symbols that a user holds: its mask, and one of each set that it is in."""
        N = len(self.masks)
        return self.U - self.T + max(sum(user == i for _, user in self.shares) for i in range(N))

    def recover(self, survivors: Users, answering: Users) -> A32:
        """The sum of the survivors' masks [U - T, LENGTH] from U of them."""
        rows = [self.shares[survivors, user] for user in answering]
        points = mds.points_of(answering, Q)
        d = (self.U - self.T) * LENGTH
        return mds.decode(rows, points, self.U, self.T, d, Q).reshape(-1, LENGTH)


class _Drawing:
    """Random symbols, counted."""

    def __init__(self, seed: int, purpose: str) -> None:
        self.rng = Streams(seed).rng(purpose)
        self.drawn = 0

    def __call__(self, symbols: int) -> A32:
        self.drawn += symbols
        return self.rng.integers(0, Q, (symbols, LENGTH), np.uint32)


def sets(N: int, U: int) -> Iterator[Users]:
    """Every set of at least U of N users, who may be the survivors."""
    for u in range(U, N + 1):
        yield from combinations(range(N), u)


def deal(N: int, U: int, T: int, seed: int) -> Dealt:
    """Generate all that Zhao and Sun's trusted party has to, and deal it out. Exponential in N."""
    draw = _Drawing(seed, "zhao_sun")
    masks = np.stack([draw(U - T) for _ in range(N)])
    shares: dict[tuple[Users, int], A32] = {}
    for members in sets(N, U):
        total = masks[list(members)].sum(axis=0, dtype=np.uint64) % Q
        rows = np.concatenate([total.astype(np.uint32), draw(T)])
        coded = matmul(mds.matrix(mds.points_of(members, Q), U, Q), rows, Q)
        shares.update({(members, user): row for user, row in zip(members, coded, strict=True)})
    return Dealt(U, T, draw.drawn, masks, shares)


def share_lightsecagg(N: int, U: int, T: int, seed: int) -> tuple[int, int]:
    """Generate and share LightSecAgg's masks (eq. 5): how many symbols are drawn, and held by a user."""
    draw = _Drawing(seed, "lightsecagg")
    code = partial(matmul, mds.matrix(mds.points_of(tuple(range(N)), Q), U, Q), q=Q)
    held = [U - T] * N
    for _ in range(N):
        for user, _row in enumerate(code(np.concatenate([draw(U - T), draw(T)]))):
            held[user] += 1
    return draw.drawn, max(held)
