"""Lies about survivors to LightSecAgg's users, by the ranks of its noise alone: no machines, so many more.

Users answer at points 1 .. N, and nobody colludes. S_a is the set that user a is told, w_a the weight of its
answer. The noise of user i is gone if w, zeroed where i is not in S_a, is a dependence between columns of
noise: T equations in w for each i. What is known of x_i is then that dependence times the columns of data.
"""

from itertools import combinations, product
from random import Random

import numpy as np
import pytest

from tests.sizes import THOROUGH, examples

Q = 10007
INVERSE = np.array([0, *(pow(c, -1, Q) for c in range(1, Q))])


def columns(n, powers):
    """The code's columns at points 1 .. n: the rows of these powers."""
    return np.array([[pow(a, k, Q) for a in range(1, n + 1)] for k in powers])


def reduced(m):
    """A batch of matrices in row echelon form over F_q, and their ranks."""
    m, rank = m % Q, np.zeros(len(m), int)
    each, places = np.arange(len(m)), np.arange(m.shape[1])
    for column in range(m.shape[2]):
        free = (m[:, :, column] != 0) & (places >= rank[:, None])
        there, pivot = free.any(1), free.argmax(1)
        at = np.where(there, rank, 0)
        pivot = np.where(there, pivot, at)
        m[each, at], m[each, pivot] = m[each, pivot].copy(), m[each, at].copy()
        row = m[each, at] * np.where(there, INVERSE[m[each, at, column]], 1)[:, None] % Q
        off = np.where((places == at[:, None]) | ~there[:, None], 0, m[:, :, column])
        m = (m - off[:, :, None] * row[:, None, :]) % Q
        m[each, at] = row
        rank += there
    return m, rank


def kernel(m):
    """A basis of what one matrix maps to zero."""
    (echelon,), _ = reduced(m[None])
    n, pivots = m.shape[1], [int(np.flatnonzero(row)[0]) for row in echelon if row.any()]
    for free in set(range(n)) - set(pivots):
        w = np.zeros(n, int)
        w[free] = 1
        w[pivots] = -echelon[: len(pivots), free] % Q
        yield w


def worst(n, T, told):
    """The most sums that one of the lies gives, and the number of those that give any.

    told: [lie, user a, user i], 1 if i is in the set that a is told.
    """
    noise, data = columns(n, range(1, T + 1)), columns(n, [0])
    # [lie, i, equation, a]: U - T = 1, one column of data; the noise has the powers after it
    equations = noise[None, None] * told.transpose(0, 2, 1)[:, :, None, :]
    m = equations.reshape(len(told), -1, n)
    few = np.flatnonzero(reduced(m)[1] < n)
    most = 0
    for k in few:
        known = [[int(data[0] @ (w * told[k, :, i]) % Q) for i in range(n)] for w in kernel(m[k])]
        (_, ranks) = reduced(np.array([known]))
        most = max(most, int(ranks[0]))
        for row in known:
            assert len({*row} - {0}) <= 1, (told[k], row)  # a multiple of a sum
    return most, len(few)


def sets(n, U, user):
    others = [i for i in range(n) if i != user]
    for size in range(U - 1, n):
        for some in combinations(others, size):
            yield [int(i == user or i in some) for i in range(n)]


@pytest.mark.parametrize(
    ("T", "count", "some"), [pytest.param(2, 161_051, 4_516, marks=pytest.mark.slow), (3, 3_125, 46)]
)
def test_no_lie_to_five_users_does_more(T, count, some) -> None:
    """All lies, of which some give a sum: one, and never another."""
    told = np.array(list(product(*(list(sets(5, T + 1, user)) for user in range(5)))))
    assert len(told) == count
    assert worst(5, T, told) == (1, some)


@pytest.mark.parametrize(("n", "T"), [(6, 3), (7, 3), (7, 4), (9, 4)])
def test_no_random_lie_to_more_users_does_more(n, T) -> None:
    random, of = Random(n * T), [list(sets(n, T + 1, user)) for user in range(n)]
    for _ in range(examples(20)):
        lies = [[random.choice(of[user]) for user in range(n)] for _ in range(10_000 if THOROUGH else 400)]
        assert worst(n, T, np.array(lies))[0] <= 1


def test_a_lie_that_works_is_seen() -> None:
    """2 (T + 1) = N: two groups of T + 1 users, each with a set of its own."""
    n, T = 4, 1
    told = np.ones((1, n, n), int)
    told[0, 2:, 0] = 0
    assert worst(n, T, told) == (2, 1)
