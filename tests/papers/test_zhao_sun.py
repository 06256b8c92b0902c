"""Zhao and Sun's randomness as it is really dealt out: it recovers, hides, and is as many symbols as said."""

from __future__ import annotations

from itertools import combinations

import galois
import numpy as np
import pytest

from papers import zhao_sun
from papers.zhao_sun import Q, deal, share_lightsecagg
from simfl.crypto import mds

SIZES = [(3, 2, 1), (4, 3, 1), (5, 4, 2), (6, 4, 3), (8, 6, 4)]


@pytest.mark.parametrize(("N", "U", "T"), SIZES)
def test_generated_symbols_are_those_of_table_6(N: int, U: int, T: int) -> None:
    dealt = deal(N, U, T, seed=3)
    subsets = [s for u in range(U, N + 1) for s in combinations(range(N), u)]
    assert dealt.drawn == zhao_sun.randomness(N, U, T) == N * (U - T) + T * len(subsets)
    in_sets = [sum(i in s for s in subsets) for i in range(N)]
    assert dealt.stored == zhao_sun.storage(N, U, T) == U - T + in_sets[0]
    assert len(set(in_sets)) == 1
    assert share_lightsecagg(N, U, T, seed=3) == (N * U, U - T + N)


def test_the_formulas_by_hand() -> None:
    """N = 4, U = 3, T = 2: sets {3 of 4} and all: 4 + 1; a user is in 3 + 1 of them."""
    assert zhao_sun.randomness(4, 3, 2) == 4 * 1 + 2 * 5
    assert zhao_sun.storage(4, 3, 2) == 1 + 4
    assert zhao_sun.lightsecagg_randomness(4, 3, 2) == 12
    assert zhao_sun.lightsecagg_storage(4, 3, 2) == 5


@pytest.mark.parametrize(("N", "U", "T"), SIZES)
def test_any_u_survivors_give_the_sum_of_the_survivors_masks(N: int, U: int, T: int) -> None:
    dealt = deal(N, U, T, seed=4)
    for survivors in zhao_sun.sets(N, U):
        plain = [sum(int(dealt.masks[i, k, 0]) for i in survivors) % Q for k in range(U - T)]
        for answering in (survivors[:U], survivors[-U:]):
            assert dealt.recover(survivors, answering)[:, 0].tolist() == plain


def test_each_set_is_padded_by_symbols_of_its_own() -> None:
    """Decoded in full, a set's shares hold T symbols beside the sum of masks, which no other set has."""
    U, T, field = 4, 2, galois.GF(Q)
    dealt, pads = deal(6, U, T, seed=5), set()
    for members in zhao_sun.sets(6, U):
        matrix = field(mds.matrix(mds.points_of(members[:U], Q), U, Q))
        coded = field(np.stack([dealt.shares[members, user] for user in members[:U]]))
        pads |= {tuple(map(int, row)) for row in (np.linalg.inv(matrix) @ coded)[U - T :]}
    assert len(pads) == T * len(list(zhao_sun.sets(6, U)))
    assert (0,) * zhao_sun.LENGTH not in pads


def test_t_shares_say_nothing() -> None:
    """The T padding columns of any T rows are invertible: every sum of masks is as likely as every other."""
    U, T, field = 5, 3, galois.GF(Q)
    for users in combinations(range(6), T):
        rows = mds.matrix(mds.points_of(users, Q), U, Q)[:, U - T :]
        assert np.linalg.matrix_rank(field(rows)) == T
