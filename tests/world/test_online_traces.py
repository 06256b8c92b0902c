"""Recorded times online: followed, wrapped, and shared by many users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import ScenarioError
from simfl.random_streams import Streams
from simfl.world import availability
from simfl.world.availability import Trace
from simfl.world.numbers import entries_of
from tests.engine.harness import days
from tests.sizes import examples
from tests.world.test_availability import NS, csv


# --- traces -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([], [(0, False)]),
        ([(0.0, 5.0)], [(5, True), (0, False)]),
        ([(2.0, 5.0)], [(2, False), (3, True), (0, False)]),
        ([(0.0, 5.0), (7.0, 8.0)], [(5, True), (2, False), (1, True), (0, False)]),
        ([(0.0, 5.0), (5.0, 8.0)], [(5, True), (3, True), (0, False)]),  # they touch: never offline between
        ([(1.0, 5.0), (5.0, 6.0), (9.0, 10.0)],
         [(1, False), (4, True), (1, True), (3, False), (1, True), (0, False)]),
    ],
)  # fmt: skip
def test_a_trace_is_followed(
    intervals: list[tuple[float, float]], expected: list[tuple[int, bool]], tmp_path: Path
) -> None:
    everyone = Trace(file=csv(tmp_path, {1: intervals})).times(2, Streams(0))
    assert list(days(everyone, 1)) == [(length * NS, online) for length, online in expected]
    assert list(days(everyone, 0)) == [(0, False)]


PERIODS = st.integers(1, 40)
WINDOWS = st.lists(st.integers(0, 40), max_size=8)
"""Ends of windows, in turn: two that are equal are a window without length."""


@settings(max_examples=examples(200))
@given(
    entries=st.lists(st.tuples(PERIODS, WINDOWS), min_size=1, max_size=4),
    own=st.booleans(),
    assign=st.sampled_from([None, "modulo", "draw"]),
    times=st.lists(st.integers(0, 400), min_size=1, max_size=20),
    users=st.integers(1, 9),
)
def test_wrapping_is_that_of_brute_force(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[int, list[int]]],
    own: bool,
    assign: Any,
    times: list[int],
    users: int,
) -> None:
    """Second by second. Each entry has a period of its own, or all have the first one's."""
    listed = {}
    for number, (period, ends) in enumerate(entries):
        at = sorted(min(end, period if own else entries[0][0]) for end in ends)
        windows = list(zip(at[::2], at[1::2], strict=False))
        listed[number] = windows if assign else [(a, b) for a, b in windows if a < b]
    periods = [period if own else entries[0][0] for period, _ in entries]
    users = users if assign else max(users, len(entries))
    file = csv(tmp_path_factory.mktemp("wrap"), listed, periods if own else None)
    if not any(listed.values()) and assign:
        return  # no line, so no entry
    spec = Trace(file=file, assign=assign, period_s=None if own else float(periods[0]))
    everyone = spec.times(users, Streams(1))
    there = [number for number, windows in listed.items() if windows]
    found = entries_of(assign or "modulo", len(there), users, Streams(1)) if assign else range(users)
    whose = [there[place] if assign else place for place in found]

    def online(user: int, second: int) -> bool:
        windows = listed.get(whose[user], [])
        return bool(windows) and any(a <= second % periods[whose[user]] < b for a, b in windows)

    ever = [any(online(user, second) for second in range(41)) for user in range(users)]
    assert everyone.ever_online is not None
    assert everyone.ever_online.tolist() == ever
    for user in range(users):
        for second in times:
            state, until = everyone.at(user, second * NS)
            assert state == online(user, second)
            assert until > second * NS
            if until == availability.FOR_EVER:
                assert {online(user, second + later) for later in range(81)} == {state}
            else:
                assert until % NS == 0
                assert {online(user, later) for later in range(second, until // NS)} == {state}
                assert state or online(user, until // NS)  # nobody is looked at for nothing


def test_many_users_share_the_entries_of_a_trace(tmp_path: Path) -> None:
    file = csv(tmp_path, {7: [(0, 5)], 10**17: [(2, 3)], 3: [(4, 4)]}, {7: 10, 10**17: 4, 3: 9})
    everyone = Trace(file=file, assign="modulo").times(7, Streams(1))
    assert everyone.ever_online is not None
    assert everyone.ever_online.tolist() == [False, True, True] * 2 + [False]
    assert [everyone.at(user, 12 * NS) for user in range(3)] == [
        (False, availability.FOR_EVER), (True, 15 * NS), (False, 14 * NS)
    ]  # fmt: skip
    assert everyone.at(4, 5 * NS) == (False, 10 * NS)
    (tmp_path / "none.csv").write_text("user,from_s,to_s\n")
    with pytest.raises(ScenarioError, match="no entries below the header"):
        Trace(file=str(tmp_path / "none.csv"), assign="draw").times(7, Streams(1))
