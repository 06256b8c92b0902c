"""Coalitions: all of them, some of them in their order, and too many refused before any is made."""

from itertools import combinations, pairwise

import pytest

from simfl.errors import BadInput
from simfl.privacy.leaks.coalitions import check_colluders, coalitions_of, spread, up_to


@pytest.mark.parametrize("users", range(1, 8))
def test_a_spread_has_even_gaps_in_the_order_of_all(users: int) -> None:
    for size in range(users + 1):
        ranks = {coalition: k for k, coalition in enumerate(combinations(range(users), size))}
        for limit in (1, 2, 12, 200):
            chosen = [ranks[coalition] for coalition in spread(range(users), size, limit)]
            assert len(chosen) == min(limit, len(ranks))
            gaps = {b - a for a, b in pairwise([*chosen, len(ranks)])}
            assert chosen[0] == 0
            assert max(gaps) - min(gaps) <= 1


def test_a_spread_over_many_users_is_not_enumerated() -> None:
    """Of 40 users 137,846,528,820 coalitions have 20."""
    some = spread(range(40), 20, 12)
    assert len(set(some)) == 12
    assert {len(set(one)) for one in some} == {20}


def test_all_coalitions_up_to_a_size() -> None:
    assert up_to(1, 3) == {0: [()], 1: [(0,), (1,), (2,)]}
    assert list(coalitions_of(4, [2])) == [2]


def test_too_many_coalitions_are_refused() -> None:
    with pytest.raises(BadInput, match=r"colluders=20 of 40 users are .* coalitions, and at most 100,000"):
        up_to(20, 40)


@pytest.mark.parametrize("collude", [-1, 3, 9])
def test_a_coalition_leaves_an_honest_user(collude: int) -> None:
    with pytest.raises(BadInput, match=f"colluders={collude} must be at least 0 and at most 2 of 3 users"):
        check_colluders(collude, 3)
