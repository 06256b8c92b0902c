"""Graphs of neighbours: each user is mapped to its sorted closed neighbourhood, itself included.

Invariant: j is in the neighbourhood of i if and only if i is in that of j; the same users and seed give the
same graph, in whatever order the users are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from simfl.protocols.index_views import Users

Graph = Mapping[int, Users]


def complete(users: Sequence[int]) -> Graph:
    """Everyone with everyone: SecAgg (Bonawitz 2017). All users share one list.

    >>> complete([3, 1, 2])[1]
    (1, 2, 3)
    """
    everyone = Users(sorted(users))
    return dict.fromkeys(everyone, everyone)


def harary(users: Sequence[int], k: int, seed: bytes) -> Graph:
    """The k-regular Harary graph over a uniformly random ordering of the users: SecAgg+ (Bell 2020).

    Everyone is joined with the k // 2 next and the k // 2 previous on a ring, and for odd k with the
    opposite one. If k and the number of users n are both odd, one user has k + 1 neighbours. Complete if
    k >= n - 1. seed: 32 bytes. ValueError if k < 2 otherwise.

    >>> sorted(len(circle) for circle in harary(range(6), 2, bytes(32)).values())
    [3, 3, 3, 3, 3, 3]
    """
    if k >= max(0, len(users) - 1):
        return complete(users)
    if k < 2:
        raise ValueError(f"k={k} must be at least 2: below that, one loss cuts a graph")
    order = _rng(seed).permutation(sorted(users)).tolist()
    ring = _ring(k, len(order))
    return _closed({order[v]: [order[w] for w in near] for v, near in enumerate(ring)})


@lru_cache(maxsize=4)  # round after round, only the ordering is another
def _ring(k: int, n: int) -> list[list[int]]:
    """The neighbours of each vertex 0 .. n - 1 of a Harary graph."""
    from networkx import hkn_harary_graph

    ring = hkn_harary_graph(k, n)
    return [list(ring[v]) for v in range(n)]


def erdos_renyi(users: Sequence[int], p: float, seed: bytes) -> Graph:
    """The random graph G(n, p), each pair joined with probability p of its own: CCESA (Choi 2020).

    Complete if p = 1. seed: 32 bytes. ValueError unless 0 <= p <= 1.

    >>> erdos_renyi(range(3), 0.0, bytes(32))
    {0: (0,), 1: (1,), 2: (2,)}
    """
    if not 0 <= p <= 1:
        raise ValueError(f"p={p} must be at least 0 and at most 1: it is a probability")
    if p == 1:
        return complete(users)
    rng, order = _rng(seed), sorted(users)
    others: dict[int, list[int]] = {user: [] for user in order}
    for v, i in enumerate(order, 1):
        joined = np.flatnonzero(rng.random(len(order) - v) < p) + v
        for j in map(order.__getitem__, joined.tolist()):
            others[i].append(j)
            others[j].append(i)
    return _closed(others)


def _rng(seed: bytes) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(int.from_bytes(seed, "big")))


def _closed(others: Mapping[int, Sequence[int]]) -> Graph:
    return {i: Users(sorted((i, *others[i]))) for i in sorted(others)}
