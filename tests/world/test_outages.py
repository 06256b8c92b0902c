"""Outages: the users that are hit together, the times, and the independence of their draws.

A count of n coins of probability p lies within five of its standard deviations but for once in 1.7 million.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from simfl.random_streams import Streams
from simfl.world.outages import Outage, Outages
from simfl.world.timelines import FOR_EVER

NS = 10**9
AGAIN = {"every_s": {"exponential": 30.0}, "lasts_s": {"exponential": 10.0}}


def outages(*listed: dict[str, Any], seed: int = 1, **more: Any) -> Outages:
    return Outages([Outage.model_validate(outage) for outage in listed], Streams(seed), **more)


def near(count: int, n: int, p: float) -> bool:
    return abs(count - n * p) <= 5 * math.sqrt(n * p * (1 - p))


def test_a_scripted_outage_is_exact_to_the_nanosecond() -> None:
    all_of = outages({"of": "all", "factor": 0.25, "from_s": 1.5, "to_s": 2.000000001})
    begin, end = 1_500_000_000, 2_000_000_001
    assert all_of.factor(3, 0) == all_of.factor(3, begin - 1) == (1.0, begin)
    assert all_of.factor(3, begin) == all_of.factor(3, end - 1) == (0.25, end)
    assert all_of.factor(3, end) == (1.0, FOR_EVER)


def test_outages_at_once_multiply() -> None:
    both = outages(
        {"of": "all", "factor": 0.5, "from_s": 0.0, "to_s": 9.0},
        {"of": {"class": "4g"}, "factor": 0.1, "from_s": 2.0, "to_s": 4.0},
        class_of=lambda user: "4g" if user else "5g",
    )
    assert both.factor(0, 3 * NS) == (0.5, 9 * NS)
    assert both.factor(1, 3 * NS) == (0.05, 4 * NS)
    assert both.factor(1, 5 * NS) == (0.5, 9 * NS)


def test_the_users_of_a_cell_go_together() -> None:
    """Users differ by their outages only: there are as many kinds of users as cells."""
    cells = outages({"of": {"cells": 12}, **AGAIN})
    times = range(0, 600 * NS, 7 * NS)
    seen = [tuple(cells.factor(user, now) for now in times) for user in range(600)]
    assert len(set(seen)) == 12
    assert all(near(seen.count(one), 600, 1 / 12) for one in set(seen))


@pytest.mark.ci
def test_a_share_of_users_goes_together() -> None:
    hit = [outages({"of": {"share": 0.2}, **AGAIN}).factor(user, 0)[1] < FOR_EVER for user in range(2000)]
    assert near(sum(hit), 2000, 0.2)
    share = outages({"of": {"share": 0.2}, **AGAIN})
    times = range(0, 600 * NS, 7 * NS)
    members = [user for user in range(2000) if hit[user]]
    assert len({tuple(share.factor(user, now) for now in times) for user in members}) == 1
    assert {share.factor(user, now) for user in range(2000) if not hit[user] for now in times} == {
        (1.0, FOR_EVER)
    }


@pytest.mark.ci
def test_outages_last_their_share_of_time() -> None:
    """Begin in the stationary state, and stay in it: a quarter of the cells is out at any time."""
    cells = outages({"of": {"cells": 2**31 - 1}, **AGAIN})
    for now in (0, 15 * NS, 1000 * NS):
        assert near(sum(cells.factor(user, now)[0] == 0 for user in range(2000)), 2000, 0.25)


def test_another_outage_changes_no_draws() -> None:
    named = {"of": {"cells": 20}, "name": "towers", **AGAIN}
    alone, after = outages(named), outages({"of": {"share": 0.5}, "factor": 1.0, **AGAIN}, named)
    times = range(0, 300 * NS, 3 * NS)
    for user in range(50):
        assert [alone.factor(user, now)[0] for now in times] == [after.factor(user, now)[0] for now in times]


def test_outages_of_other_names_come_at_other_times() -> None:
    first, second = (outages({"of": "all", "name": name, **AGAIN}) for name in ("towers", "others"))
    assert [first.factor(0, at * NS) for at in range(9)] != [second.factor(0, at * NS) for at in range(9)]


def test_one_name_hits_the_same_users() -> None:
    twice = [{"of": {"share": 0.5}, "name": "towers", "from_s": at, "to_s": at + 1.0} for at in (1.0, 5.0)]
    both = outages(*twice)
    first, second = ({user for user in range(100) if both.factor(user, at * NS)[0] == 0} for at in (1, 5))
    assert first == second
    assert 0 < len(first) < 100
    other = outages({**twice[0], "name": "others"})
    assert {user for user in range(100) if other.factor(user, NS)[0] == 0} != first


def test_only_outages_that_say_so_take_users_offline() -> None:
    slow = {"of": "all", "factor": 0.5, "from_s": 0.0, "to_s": 9.0}
    gone = {"of": "all", "from_s": 2.0, "to_s": 4.0, "offline": True}
    assert not outages(slow).take_offline
    both = outages(slow, gone)
    assert both.take_offline
    assert [both.offline(0, at * NS) for at in (0, 2, 4)] == [
        (False, 2 * NS),
        (True, 4 * NS),
        (False, FOR_EVER),
    ]
    assert outages(slow).offline(0, 0) == (False, FOR_EVER)


@pytest.mark.parametrize("online_s", [0.0, 5.0])
def test_nested_outages_last_as_long_as_the_longest(online_s: float) -> None:
    """A user is held offline for 1,000 s, in which the renewed outages of 10 s change nothing."""
    long = {"of": "all", "factor": 0.0, "from_s": 5.0, "to_s": 1000.0, "offline": True}
    both = outages({"of": "all", "factor": 0.5, "offline": True, **AGAIN}, long)
    assert both.offline(0, 5 * NS) == (True, 1000 * NS)
    assert both.factor(0, 5 * NS) == (0.0, 1000 * NS)
    days = both.online(lambda user, now: (now < online_s * NS, 2000 * NS))
    assert days(0, 5 * NS) == (False, 2000 * NS)
    assert both.online(lambda user, now: (True, 7 * NS))(0, 5 * NS) == (False, 1000 * NS)


MISTAKES = [
    ({"of": "all"}, "give from_s and to_s, or every_s and lasts_s, not none"),
    ({"of": "all", "from_s": 1.0, "lasts_s": 2.0}, "or every_s and lasts_s, not from_s and lasts_s"),
    ({"of": "all", "from_s": 1.0, "to_s": 1.0}, "to_s=1 must be above from_s=1"),
    ({"of": {"cells": 3}, "from_s": 1.0, "to_s": 2.0}, "would hit all cells at once"),
    ({"of": "all", "every_s": 1.0, "lasts_s": {"kind": "pareto", "least": 1.0, "alpha": 1.0}},
     "lasts_s must have a mean"),
    ({"of": {"share": 1.5}, **AGAIN}, "less than or equal to 1"),
]  # fmt: skip


@pytest.mark.parametrize(("outage", "says"), MISTAKES)
def test_a_mistake_in_an_outage_is_refused(outage: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Outage.model_validate(outage)


def test_an_outage_of_an_unknown_class_is_refused() -> None:
    outage = Outage.model_validate({"of": {"class": "cheep"}, **AGAIN})
    there = "there are: cheap, fast; did you mean 'cheap'?"
    assert list(outage.problems(["cheap", "fast"])) == [("of.name", f"no class 'cheep'; {there}")]
    assert list(outage.problems([])) == [("of.name", "no class 'cheep'; the population has none")]
    assert not list(outage.problems(["cheep"]))
