"""Laws that all schemes share, and the simple ones by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import chi2

from simfl.errors import RunFailed
from simfl.world.participation import Participation
from simfl.world.selection import (
    SELECTION,
    All,
    Bernoulli,
    Charged,
    MultiRound,
    Partition,
    Random,
    Selection,
    WeightedRandom,
)

N = 48
NOBODY_YET = Participation(N)
NOBODY_YET.battery = np.ones(N)
SCHEMES = {
    "all": lambda k: All(),
    "random": lambda k: Random(users=k),
    "charged": lambda k: Charged(users=k, least=0.5),
    "weighted_random": lambda k: WeightedRandom(users=k),
    "partition": lambda k: Partition(users=k),
    "bernoulli": lambda k: Bernoulli(probability=0.4),
    "multi_round": lambda k: MultiRound(users=k, T=2),
    "multi_round, uniform": lambda k: MultiRound(users=k, T=2, fair=False),
}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def past(counts: list[int]) -> Participation:
    history = Participation(len(counts))
    history.battery = np.ones(len(counts))
    for index in range(max(counts)):
        history.append([user for user, count in enumerate(counts) if count > index])
    return history


def test_every_kind_is_tried_here() -> None:
    assert {name.partition(",")[0] for name in SCHEMES} == set(SELECTION)


@pytest.mark.parametrize("name", sorted(SCHEMES))
@given(
    away=st.lists(st.integers(0, N - 1), unique=True, max_size=20) | st.just(list(range(N - 2))),
    k=st.sampled_from([2, 4, 8, 12]),
    seed=st.integers(0, 2**32),
)
def test_a_selection_is_available_ascending_and_replays(
    name: str, away: list[int], k: int, seed: int
) -> None:
    scheme, history = SCHEMES[name](k), past([0] * N)
    for _ in range(4):
        history.append(rng(seed % 7).choice(N, 6, replace=False))
    available = sorted(set(range(N)) - set(away))
    first = scheme.chosen(available, history, rng(seed))
    assert first == scheme.chosen(available[::-1], history, rng(seed))
    assert first == scheme.chosen(np.array(available), history, rng(seed))
    assert len(history) == 4
    if first is None:
        # Half of the users are away at most, or all but two: only the schemes by batch, and luck, may skip.
        assert len(available) < k or name in ("partition", "bernoulli") or name.startswith("multi_round")
    else:
        assert first == sorted(set(first))
        assert set(first) <= set(available)
        assert all(type(user) is int for user in first)
        assert name == "bernoulli" or len(first) <= scheme.cohort(N)
        assert name in ("all", "bernoulli") or len(first) == k == scheme.cohort(N)


@pytest.mark.parametrize("scheme", [Random(users=4), WeightedRandom(users=4), Partition(users=4)])
def test_too_few_skip_the_round(scheme: Selection) -> None:
    assert scheme.chosen([1, 2, 3], NOBODY_YET, rng()) is None
    assert All().chosen([], NOBODY_YET, rng()) is None
    assert list(scheme.problems(3)) == [("users", "users=4 must not be above population.users=3")]


def test_an_unavailable_user_is_refused() -> None:
    class Wrong(Selection):
        found: tuple[int, ...]

        def select(self, *_: object) -> tuple[int, ...]:
            return self.found

    with pytest.raises(RunFailed, match="selection Wrong: user 9 is not available"):
        Wrong(found=(3, 9)).chosen([3, 5], NOBODY_YET, rng())
    with pytest.raises(RunFailed, match="selection Wrong: user 3 is chosen twice"):
        Wrong(found=(3, 5, 3)).chosen([3, 5], NOBODY_YET, rng())


@pytest.mark.ci
def test_random_takes_every_pair_equally_often() -> None:
    stream, counts = rng(2), dict[tuple[int, ...], int]()
    for _ in range(6000):
        pair = tuple(Random(users=2).chosen([0, 1, 2, 3], NOBODY_YET, stream) or ())
        counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 6
    # 1000 expected, standard deviation 29.
    assert all(abs(count - 1000) < 150 for count in counts.values())


@pytest.mark.ci
def test_bernoulli_takes_k_of_n_on_average() -> None:
    stream, users, K, p, rounds = rng(3), 40, 8, 0.3, 4000
    scheme = Bernoulli(probability=K / (users * (1 - p)))
    sizes, each = [], np.zeros(users)
    for _ in range(rounds):
        available = np.flatnonzero(stream.random(users) >= p)
        chosen = scheme.chosen(available, NOBODY_YET, stream) or []
        sizes.append(len(chosen))
        each[chosen] += 1
    # Each user takes part with K / N, independently: five standard deviations, of the mean and of the worst.
    assert abs(np.mean(sizes) - K) < 5 * np.sqrt(users * 0.2 * 0.8 / rounds)
    assert abs(np.var(sizes) / (users * 0.2 * 0.8) - 1) < 5 * np.sqrt(2 / rounds)
    assert (abs(each / rounds - K / users) < 5 * np.sqrt(0.2 * 0.8 / rounds)).all()


def test_bernoulli_may_draw_no_user() -> None:
    assert Bernoulli(probability=1e-12).chosen([7, 2], NOBODY_YET, rng()) is None
    assert Bernoulli(probability=1.0).chosen([7, 2], NOBODY_YET, rng()) == [2, 7]
    assert Bernoulli(probability=0.25).usual(10) == 3


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.01, float("nan")])
def test_a_probability_is_one(probability: float) -> None:
    with pytest.raises(ValidationError):
        Bernoulli(probability=probability)


@given(
    counts=st.lists(st.integers(0, 4), min_size=6, max_size=12),
    away=st.sets(st.integers(0, 5), max_size=4),
    k=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_weighted_leaves_out_no_user_of_lower_frequency(
    counts: list[int], away: set[int], k: int, seed: int
) -> None:
    available = [user for user in range(len(counts)) if user not in away]
    chosen = WeightedRandom(users=k).chosen(available, past(counts), rng(seed))
    if len(available) < k:
        assert chosen is None
        return
    assert chosen is not None
    assert len(set(chosen)) == k
    left = set(available) - set(chosen)
    assert max(counts[user] for user in chosen) <= min((counts[user] for user in left), default=9)


@pytest.mark.ci
def test_weighted_draws_ties_uniformly() -> None:
    history, stream, rounds = past([0, 1, 1, 1, 1, 2]), rng(5), 6000
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(rounds):
        chosen = WeightedRandom(users=3).chosen(range(6), history, stream)
        assert chosen is not None
        assert chosen[0] == 0
        seen[tuple(chosen[1:])] = seen.get(tuple(chosen[1:]), 0) + 1
    assert sorted(seen) == [(a, b) for a in range(1, 5) for b in range(a + 1, 5)]
    # A right implementation fails here with probability 1e-6.
    statistic = sum((count - rounds / 6) ** 2 / (rounds / 6) for count in seen.values())
    assert statistic < chi2.isf(1e-6, df=5)


def test_weighted_takes_all_equally_often() -> None:
    history, stream = Participation(12), rng()
    for _ in range(9):
        history.append(WeightedRandom(users=4).chosen(range(12), history, stream) or [])
    assert history.counts.tolist() == [3] * 12


# --- more than are wanted -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("users", "over", "chosen"),
    [(100, 1.3, 130), (100, 1.1, 110), (10, 1.0, 10), (10, 1.01, 11), (3, 1.0001, 4), (7, 1.5, 11)],
)
@pytest.mark.parametrize("kind", [Random, WeightedRandom])
def test_over_chooses_the_next_whole_number(kind: Any, users: int, over: float, chosen: int) -> None:
    """100 x 1.1 in floats is above 110."""
    scheme = kind(users=users, over=over)
    assert scheme.cohort(1000) == scheme.usual(1000) == chosen
    assert scheme.enough() == (users if chosen > users else None)
    history, rng = Participation(1000), np.random.default_rng(3)
    for there, expected in ((1000, chosen), (chosen - 1, max(users, chosen - 1)), (users, users)):
        if there >= users:
            assert len(scheme.chosen(range(there), history, rng) or ()) == expected
    assert scheme.chosen(range(users - 1), history, rng) is None


def test_weighted_over_takes_the_least_frequent_first() -> None:
    history = Participation(6)
    history.append([0, 1, 2])
    for seed in range(20):
        chosen = WeightedRandom(users=3, over=1.3).chosen(range(6), history, np.random.default_rng(seed))
        assert chosen is not None
        assert {3, 4, 5} < set(chosen)


def test_over_of_one_draws_as_without_over() -> None:
    for kind in (Random, WeightedRandom):
        history, rngs = Participation(50), [np.random.default_rng(8) for _ in range(2)]
        one, other = (
            spec.chosen(range(50), history, rng)
            for spec, rng in zip((kind(users=20), kind(users=20, over=1.0)), rngs, strict=True)
        )
        assert one == other


def test_over_is_written_where_it_is_given() -> None:
    assert Random(users=3).model_dump() == {"kind": "random", "users": 3}
    assert Random(users=3, over=1.5).model_dump() == {"kind": "random", "users": 3, "over": 1.5}


# --- batteries --------------------------------------------------------------------------------------
def test_charged_takes_no_user_below_the_minimum_level() -> None:
    history = Participation(6)
    history.battery = np.array([0.29, 0.3, 1.0, 0.0, 0.31, 0.9])
    scheme = Charged(users=2, least=0.3)
    picked = {user for seed in range(60) for user in scheme.chosen([0, 1, 3, 4], history, rng(seed)) or ()}
    assert picked == {1, 4}
    assert {len(scheme.chosen(range(6), history, rng(seed)) or ()) for seed in range(9)} == {2}
    assert scheme.chosen([0, 1, 3], history, rng()) is None  # one is not enough


def test_charged_without_batteries_fails() -> None:
    with pytest.raises(RunFailed, match="no device has a battery"):
        Charged(users=2, least=0.3).chosen(range(6), Participation(6), rng())


@pytest.mark.parametrize(
    ("scheme", "needed"),
    [
        (Random(users=12), ""),
        (Charged(users=12, least=0.25), "12 with a battery at 25% or above"),
        (MultiRound(users=12, T=6), "2 whole batches of 6"),
        (MultiRound(users=12, T=12), "1 whole batch of 12"),
        (Partition(users=12), "1 whole group of 12"),
    ],
)
def test_needed_is_more_than_a_number_of_users(scheme: Selection, needed: str) -> None:
    """For 12 users of a round; a scheme that only counts available users has no such words."""
    assert scheme.needed() == needed
