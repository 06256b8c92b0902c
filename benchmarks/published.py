"""Time to find one coefficient of an MDS code in Python of the kind that LightSecAgg's testbed ran.

    python benchmarks/published.py

The published implementation finds every Lagrange coefficient in loops of Python that call numpy on scalars,
with an extended Euclid for each. Such a loop of our own is timed here at the sizes of Table 4: l_i(x_j) for U
nodes a_i, and N points x_j where a mask is coded, U - T where sums are decoded; modulo 2^15 - 19, which FedML
takes by default, and modulo 2^31 - 1, about as large as the paper's q, of which more steps of Euclid follow.
Beside it are a mask's element and a multiply-add of the code in the same numpy: what was fitted to Table 4 of
them, as a multiple, is how much slower the testbed's machine is. A coefficient times the smaller one is
`COEFFICIENT_S` of papers/lightsecagg_testbed.py. All in CPU seconds, the least of a few.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simfl.crypto import mds
from simfl.world import profiles

PRIMES = (2**15 - 19, 2**31 - 1)
N, T, U, M = 200, 100, 140, 30_165
D = M * (U - T)
REPEATS = 5

Vector = NDArray[np.int64]


def inverse(a: np.int64, q: int) -> np.int64:
    """1 / a modulo q by the extended Euclid, for a of 1 .. q - 1."""
    r, s = np.int64(q), a
    t, u = np.int64(0), np.int64(1)
    while s:
        k = np.int64(r // s)
        r, s = s, np.mod(r, s)
        t, u = u, np.mod(t - k * u, q)
    return np.int64(t)


def times(values: Vector, q: int) -> np.int64:
    """The product of residues modulo q."""
    out = np.int64(1)
    for value in values:
        out = np.mod(out * np.mod(value, q), q)
    return out


def lagrange(points: Vector, nodes: Vector, q: int) -> Vector:
    """l_i(x_j) modulo q as [points, nodes], for points that are no nodes."""
    below = [times(a - nodes[nodes != a], q) for a in nodes]
    out = np.empty((len(points), len(nodes)), np.int64)
    for j, x in enumerate(points):
        above = times(x - nodes, q)
        for i, a in enumerate(nodes):
            out[j, i] = np.mod(above * inverse(np.mod(np.mod(x - a, q) * below[i], q), q), q)
    return out


def seconds(call: Callable[[], object]) -> float:
    """The least CPU seconds of a call."""
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return min(taken)


def unmask(total: Vector, q: int) -> Vector:
    """A mask drawn, and taken from a sum."""
    draws = np.random.RandomState(1).randint(0, q, size=len(total)).astype(np.int64)
    out: Vector = np.mod(total - draws, q)
    return out


def code(W: Vector, Z: Vector, q: int) -> Vector:
    """W Z modulo q, row by row."""
    out = np.empty((len(W), Z.shape[1]), np.int64)
    for j, row in enumerate(W):
        out[j] = row.dot(Z)
    return np.mod(out, q)


def main() -> None:
    """Time it all, and print."""
    nodes, points = np.arange(1, U + 1), np.arange(U + 1, U + 1 + N)
    found = []
    for q in PRIMES:
        coding = seconds(partial(lagrange, points, nodes, q)) / (N * U)
        decoding = seconds(partial(lagrange, points[: U - T], nodes, q)) / ((U - T) * U)
        found.append(coding)
        print(f"a coefficient modulo {q}: coding {coding:.3g} s, decoding {decoding:.3g} s")
    q = PRIMES[0]
    W, Z = lagrange(points, nodes, q), np.random.RandomState(2).randint(0, q, size=(U, M))
    fitted = profiles.load("lightsecagg_table4").seconds
    slower = []
    for kind, here in (
        ("prg_element", seconds(partial(unmask, np.ones(D, np.int64), q)) / D),
        ("mds_mac", seconds(partial(code, W, Z, q)) / (N * U * M)),
    ):
        slower.append(fitted[kind] / here)
        print(f"{kind}: here {here:.3g} s, fitted {fitted[kind]:.3g} s, {slower[-1]:.3g} times that")
    print("a coefficient on the testbed:", ", ".join(f"{here * min(slower):.2g} s" for here in found))
    mds.matrix.cache_clear()
    start = time.process_time()
    mds.matrix(tuple(range(1, N + 1)), U, PRIMES[1])
    print(f"an entry of our own coding matrix: {(time.process_time() - start) / (N * U):.3g} s")


if __name__ == "__main__":
    main()
