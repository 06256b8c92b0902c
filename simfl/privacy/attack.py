"""The server's least-squares attack on many rounds' sums.

Once the global model has settled, a user's update is nearly the same in every round, and the sums of the
rounds t_0 .. t_1 - 1 are linear equations in the users' updates. Where P has not full column rank the inverse
of eq. 34 does not exist; the least-squares solution of least norm takes its place. It gives users whose
columns are identical, such as a batch of Multi-RoundSecAgg, equal shares of their sum, as the paper does.

Source: Multi-RoundSecAgg, appendix G.2, eqs. 33-35.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfl.privacy import modular
from simfl.privacy.matrix import Matrix, dense, rounds
from simfl.privacy.modular import PRIMES, RowSpace
from simfl.privacy.strong import Classes


class Isolated(NamedTuple):
    """What the server can single out exactly, where updates are constant.

    users: those whose own update it can, ascending. groups: the classes of two or more users with identical
    columns whose sum it can, each ascending, by their first user.
    """

    users: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]


def reconstruct(P: Matrix, totals: NDArray[np.floating]) -> NDArray[np.floating]:
    """The estimates of eq. 34, [N, d], NaN for users that never took part.

    P: [r, N]. totals: [r, d], each round's sum of its users' (weighted) updates; the estimates are of what
    was summed, in the same floating type. Memory: one more array of the size of the result's.
    ValueError if P and totals differ in r.
    """
    matrix = dense(P)
    if totals.ndim != 2 or len(totals) != len(matrix):
        raise ValueError(f"totals must be [{len(matrix)} rounds, d], not of shape {totals.shape}")
    # P^+ is small and d may be millions: one product with it, not a factorisation with d right-hand sides.
    estimates: NDArray[np.floating] = np.linalg.pinv(matrix.astype(np.float64)).astype(totals.dtype) @ totals
    estimates[~matrix.any(axis=0)] = np.nan
    return estimates


def errors(truth: NDArray[np.floating], estimates: NDArray[np.floating]) -> NDArray[np.float64]:
    """e_i = ||d_i - d^_i||^2 / ||d_i||^2 (eq. 35), [N], for truth and estimates of [N, d].

    NaN where the estimate is (users that never took part). For a true update of zero: 0 if the estimate is
    exactly zero too, otherwise infinite. ValueError if the shapes differ.
    """
    if truth.shape != estimates.shape:
        raise ValueError(f"truth is {truth.shape} and the estimates are {estimates.shape}")
    found = np.empty(len(truth), np.float64)
    for i, (true, estimate) in enumerate(zip(truth, estimates, strict=True)):  # no copies of [N, d]
        norm = float(np.square(true, dtype=np.float64).sum())
        apart = float(np.square(true - estimate, dtype=np.float64).sum())
        found[i] = apart / norm if norm else (0.0 if apart == 0 else apart * np.inf)
    return found


def rank(P: Matrix) -> int:
    """The rank of P, [t, N]: modulo a prime, so that it is certain not to be less."""
    return modular.rank(dense(P), PRIMES[0])


def isolated(P: Matrix) -> Isolated:
    """The users i with e_i in the row space of P, [t, N], and likewise the classes of identical columns.

    A class can be singled out exactly if a row of the reduced row echelon form has no other users. This is
    computed modulo a prime near 2^31, and wrong for a class with a chance of about one in 2^31.
    """
    rows, users = rounds(P), dense(P).shape[1]
    classes, space = Classes(users), RowSpace(users, PRIMES[0])
    for members in rows:
        classes.append(members)
        space.append(members)
    alone = []
    for row in space.rows:
        members = np.flatnonzero(row)
        if (classes.labels[members] == classes.labels[members[0]]).all():
            alone.append(tuple(members.tolist()))
    alone.sort()
    return Isolated(
        tuple(group[0] for group in alone if len(group) == 1),
        tuple(group for group in alone if len(group) > 1),
    )
