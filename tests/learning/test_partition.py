"""The laws of the ways to deal out samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simfl.learning.data import Split
from simfl.learning.partition import (
    Dirichlet,
    Drawn,
    Few,
    Iid,
    Natural,
    Partition,
    QuantitySkew,
    Shards,
    Shared,
    label_counts,
)
from simfl.random_streams import Streams
from tests.sizes import examples

FEW = settings(max_examples=examples(30))
I64 = NDArray[np.int64]

labels = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(lambda y: np.array(y, np.int64))
seeds = st.integers(0, 2**32)
betas = st.floats(1e-4, 1e4)
Rng = np.random.Generator


def dealt(scheme: Partition, y: I64, users: int, rng: Rng, owner: I64 | None = None) -> list[I64]:
    return scheme.dealt(Split(y[:, None], y, y[:1, None], y[:1], 10, owner), users, rng)  # type: ignore[arg-type]


def iid(y: I64, users: int, rng: Rng) -> list[I64]:
    return dealt(Iid(), y, users, rng)


def dirichlet(y: I64, users: int, beta: float, rng: Rng, least: int = 1) -> list[I64]:
    return dealt(Dirichlet(beta=beta, min_samples=least), y, users, rng)


def quantity_skew(y: I64, users: int, beta: float, rng: Rng, least: int = 1) -> list[I64]:
    return dealt(QuantitySkew(beta=beta, min_samples=least), y, users, rng)


def shards(y: I64, users: int, each: int, rng: Rng) -> list[I64]:
    return dealt(Shards(per_user=each), y, users, rng)


def natural(owner: I64 | None, users: int, rng: Rng) -> list[I64]:
    return dealt(Natural(), np.zeros(99, np.int64), users, rng, owner)


def shared(y: I64, users: int, samples: int, rng: Rng) -> list[I64]:
    return dealt(Shared(samples=samples), y, users, rng)


def ascending(parts: list[I64]) -> bool:
    return all((np.diff(part) > 0).all() and part.dtype == np.int64 for part in parts)


def dealt_once(parts: list[I64], n: int) -> bool:
    return ascending(parts) and sorted(np.concatenate(parts).tolist()) == list(range(n))


@FEW
@given(labels, st.integers(1, 100), seeds)
def test_iid_deals_every_sample_once_and_equally(y: I64, users: int, seed: int) -> None:
    parts = iid(y, users, np.random.default_rng(seed))
    sizes = [len(part) for part in parts]
    assert len(parts) == users
    assert dealt_once(parts, len(y))
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("scheme", [dirichlet, quantity_skew])
@FEW
@given(y=labels, data=st.data(), beta=betas, seed=seeds)
def test_skewed_schemes_deal_every_sample_once(
    scheme: Callable[..., list[I64]], y: I64, data: st.DataObject, beta: float, seed: int
) -> None:
    min_samples = data.draw(st.integers(1, len(y)))
    users = data.draw(st.integers(1, len(y) // min_samples))
    parts = scheme(y, users, beta, np.random.default_rng(seed), min_samples)
    assert len(parts) == users
    assert dealt_once(parts, len(y))
    assert min(len(part) for part in parts) >= min_samples


@FEW
@given(labels, st.data(), seeds)
def test_shards_are_dealt_once_equally_and_by_label(y: I64, data: st.DataObject, seed: int) -> None:
    users = data.draw(st.integers(1, len(y)))
    each = data.draw(st.integers(1, len(y) // users))
    parts = shards(y, users, each, np.random.default_rng(seed))
    sizes = [len(part) for part in parts]
    assert len(parts) == users
    assert dealt_once(parts, len(y))
    assert each * (len(y) // (users * each)) <= min(sizes)
    assert max(sizes) <= each * -(-len(y) // (users * each))
    # Each border between two labels adds one label to one shard at most.
    held = (label_counts(y, parts, 5) > 0).sum(axis=1)
    borders = len(np.unique(y)) - 1
    assert held.max() <= each + borders
    if each == 1:
        assert held.sum() <= users + borders


@FEW
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.data(), seeds)
def test_shards_of_even_classes_hold_one_label(
    classes: int, a_class: int, size: int, data: st.DataObject, seed: int
) -> None:
    """Multi-RoundSecAgg, App. E: "each user has only one digit label"; McMahan 2017: at most two."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(classes), a_class * size))
    count = classes * a_class
    each = data.draw(st.sampled_from([k for k in range(1, count + 1) if count % k == 0]))
    counts = label_counts(y, shards(y, count // each, each, rng), classes)
    assert (counts.sum(axis=1) == each * size).all()
    assert ((counts > 0).sum(axis=1) <= each).all()
    assert (counts % size == 0).all()


def test_shards_are_dealt_at_random() -> None:
    """Chi-square over the owner of the first of six shards, 5 degrees: above 20.5 by chance 1 in 1000."""
    rng, y, times = np.random.default_rng(3), np.repeat(np.arange(6), 2), 1000
    has_first = [int(label_counts(y, shards(y, 6, 1, rng), 6)[:, 0].argmax()) for _ in range(times)]
    assert (6 / times * (np.bincount(has_first, minlength=6) - times / 6) ** 2).sum() < 20.5


def test_shards_sort_ties_at_random() -> None:
    """Of four samples of a label, the first two share a shard with probability 1/3 (6 deviations: 2e-9)."""
    rng, times = np.random.default_rng(8), 1000
    parts = [shards(np.zeros(4, np.int64), 2, 1, rng) for _ in range(times)]
    together = sum([0, 1] in [part.tolist() for part in dealt] for dealt in parts)
    assert abs(together - times / 3) < 6 * np.sqrt(times * 2 / 9)


owners = st.lists(st.integers(-3, 6), min_size=1, max_size=60).map(lambda owner: np.array(owner, np.int64))


@FEW
@given(owners, st.data(), seeds)
def test_natural_users_keep_their_samples(owner: I64, data: st.DataObject, seed: int) -> None:
    writers = np.unique(owner)
    users = data.draw(st.integers(1, len(writers)))
    parts = natural(owner, users, np.random.default_rng(seed))
    drawn = [int(owner[part[0]]) for part in parts]
    assert drawn == sorted(set(drawn))
    assert len(parts) == users
    assert ascending(parts)
    for name, part in zip(drawn, parts, strict=True):
        assert part.tolist() == np.flatnonzero(owner == name).tolist()


def test_natural_users_are_drawn_at_random() -> None:
    """Each of six is among two with probability 1/3: 6 deviations are 2e-9 a writer."""
    rng, owner = np.random.default_rng(4), np.repeat(np.arange(6), 3)
    taken = np.zeros(6)
    for _ in range(900):
        taken[[owner[part[0]] for part in natural(owner, 2, rng)]] += 1
    assert (np.abs(taken - 300) < 6 * np.sqrt(900 * 2 / 9)).all()


@FEW
@given(labels, st.data(), seeds)
def test_shared_deals_some_to_all_and_the_rest_once(y: I64, data: st.DataObject, seed: int) -> None:
    assume(len(y) > 1)
    users = data.draw(st.integers(1, len(y) - 1))
    samples = data.draw(st.integers(1, len(y) - users))
    parts = shared(y, users, samples, np.random.default_rng(seed))
    times = np.bincount(np.concatenate(parts), minlength=len(y))
    assert len(parts) == users
    assert ascending(parts)
    if users > 1:
        everyone = times == users
        assert everyone.sum() == samples
        assert (times[~everyone] == 1).all()
        # As many of each class, to within one, as long as a class lasts.
        total, common = np.bincount(y, minlength=5), np.bincount(y[everyone], minlength=5)
        assert common.max() - common[common < total].min(initial=common.max()) <= 1
    else:
        assert (times == 1).all()
    sizes = [len(part) - samples for part in parts]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


def test_shared_is_the_papers_data_set() -> None:
    """Multi-RoundSecAgg, App. E: "200 samples of globally shared data and 415 [...] with one label"."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
    counts = label_counts(y, shared(y, 120, 200, np.random.default_rng(1)), 10) - 20
    assert sorted(counts.ravel().tolist()) == [0] * 1080 + [415] * 120
    assert (counts.sum(axis=1) == 415).all()


def test_shared_draws_samples_and_classes_at_random() -> None:
    """One sample of four, 2 classes: chi-square with 3 degrees, above 16.3 by chance 1 in 1000."""
    rng, y, times = np.random.default_rng(5), np.array([0, 0, 1, 1]), 1000
    drawn = [set.intersection(*(set(part.tolist()) for part in shared(y, 2, 1, rng))) for _ in range(times)]
    count = np.bincount([one.pop() for one in drawn], minlength=4)
    assert (4 / times * (count - times / 4) ** 2).sum() < 16.3


def test_few_deals_as_many_to_each_and_leaves_the_rest() -> None:
    y = np.arange(40) % 4
    parts = dealt(Few(samples=3), y, 5, np.random.default_rng(0))
    held = np.concatenate(parts)
    assert [len(part) for part in parts] == [3] * 5
    assert len(np.unique(held)) == 15
    assert held.max() - held.min() > 20  # drawn from all of them
    with pytest.raises(ValueError, match="users=5 times samples=9 is above the 40 samples"):
        dealt(Few(samples=9), y, 5, np.random.default_rng(0))


def test_beta_rules_how_mixed_the_users_are() -> None:
    y = np.repeat(np.arange(10), 100)

    def largest_class_share(beta: float) -> float:
        parts = dirichlet(y, 10, beta, np.random.default_rng(0), 10)
        return float(np.mean([np.bincount(y[part]).max() / len(part) for part in parts]))

    assert largest_class_share(0.05) > 0.6
    assert largest_class_share(1000) < 0.2


@pytest.mark.parametrize("beta", [0.1, 2.0])
def test_quantity_skew_has_sizes_of_a_dirichlet_law(beta: float) -> None:
    """Var p = (1/N)(1 - 1/N) / (N beta + 1), to within 6 standard errors: 2e-9 by chance, were it normal."""
    rng, users, n, times = np.random.default_rng(6), 8, 2000, 200
    y = np.zeros(n, np.int64)
    parts = [quantity_skew(y, users, beta, rng) for _ in range(times)]
    p = np.array([[len(part) / n for part in dealt] for dealt in parts])
    squares = ((p - 1 / users) ** 2).mean(axis=1)  # independent from one draw to the next
    expected = (1 / users) * (1 - 1 / users) / (users * beta + 1)
    rounding = 2 / n  # sizes are whole
    assert abs(squares.mean() - expected) < 6 * squares.std() / np.sqrt(times) + rounding**2
    assert (np.abs(p.mean(axis=0) - 1 / users) < 6 * p.std(axis=0) / np.sqrt(times) + rounding).all()


def test_quantity_skew_leaves_labels_iid() -> None:
    """Chi-square of users x labels, (users - 1) x 4 degrees: 6 deviations above its mean, below 1e-6."""
    y = np.repeat(np.arange(5), 2000)
    counts = label_counts(y, quantity_skew(y, 10, 1.0, np.random.default_rng(7), 100), 5)
    expected = counts.sum(axis=1, keepdims=True) / 5
    degrees = (10 - 1) * (5 - 1)
    assert ((counts - expected) ** 2 / expected).sum() < degrees + 6 * np.sqrt(2 * degrees)
    assert counts.sum(axis=1).max() > 2 * counts.sum(axis=1).min()


@FEW
@given(labels, st.integers(1, 10), st.integers(5, 9), seeds)
def test_label_counts_count_labels(y: I64, users: int, classes: int, seed: int) -> None:
    parts = iid(y, users, np.random.default_rng(seed))
    counts = label_counts(y, parts, classes)
    assert counts.shape == (users, classes)
    assert counts.dtype == np.int64
    assert counts.tolist() == [[y[part].tolist().count(c) for c in range(classes)] for part in parts]


@FEW
@given(labels, seeds)
def test_a_partition_is_a_function_of_its_stream(y: I64, seed: int) -> None:
    assume(len(y) > 1)
    users, kept = max(1, len(y) // 3), y.copy()
    dealers: list[Callable[[np.random.Generator], list[I64]]] = [
        lambda rng: iid(y, users, rng),
        lambda rng: dirichlet(y, users, 0.5, rng),
        lambda rng: quantity_skew(y, users, 0.5, rng),
        lambda rng: shards(y, users, 1, rng),
        lambda rng: natural(y, len(np.unique(y)), rng),
        lambda rng: shared(y, users, max(1, len(y) // 2), rng),
    ]
    for deal in dealers:
        first, second = deal(np.random.default_rng(seed)), deal(np.random.default_rng(seed))
        assert [part.tolist() for part in first] == [part.tolist() for part in second]
    assert y.tolist() == kept.tolist()


def test_partitions_are_golden() -> None:
    y = np.arange(20) % 4
    assert [part.tolist() for part in iid(y, 3, Streams(7).rng("partition"))] == [
        [0, 1, 2, 7, 10, 12, 19],
        [5, 6, 9, 13, 14, 16, 18],
        [3, 4, 8, 11, 15, 17],
    ]
    assert [part.tolist() for part in dirichlet(y, 3, 0.5, Streams(7).rng("partition"), 4)] == [
        [2, 6, 10, 18],
        [4, 15, 16, 19],
        [0, 1, 3, 5, 7, 8, 9, 11, 12, 13, 14, 17],
    ]


def test_errors_name_the_values() -> None:
    y, rng = np.zeros(10, np.int64), np.random.default_rng(0)
    with pytest.raises(ValueError, match="users=4 times min_samples=3 is above the 10 samples"):
        dirichlet(y, 4, 1.0, rng, 3)
    with pytest.raises(ValueError, match="users=4 times min_samples=3 is above the 10 samples"):
        quantity_skew(y, 4, 1.0, rng, 3)
    with pytest.raises(ValueError, match="users=4 times per_user=3 is above the 10 samples"):
        shards(y, 4, 3, rng)
    with pytest.raises(ValueError, match="users=3 is above the 2 natural users of the data set"):
        natural(np.array([5, 7, 5]), 3, rng)
    with pytest.raises(ValueError, match="the data set has no natural users"):
        natural(None, 3, rng)
    with pytest.raises(ValueError, match="shared samples=8 of 10 leave 2 for users=3"):
        shared(y, 3, 8, rng)
    with pytest.raises(ValueError, match="shared samples=11 of 10 leave 0 for users=1"):
        shared(y, 1, 11, rng)
    with pytest.raises(ValueError, match=r"labels 0 .. 3 must lie in 0 .. classes - 1 = 2"):
        label_counts(np.array([0, 3]), [np.array([0])], 3)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([[0], [1], [2]], "deals to 3 users instead of 2"),
        ([[0, 1], [4]], r"deals samples 0 .. 4 of 0 .. 3"),
        ([[-1], []], r"deals samples -1 .. -1 of 0 .. 3"),
        ([[0], [3, 1, 3]], "deals sample 3 twice to user 1"),
    ],
)
def test_wrong_deals_are_refused(parts: list[list[int]], why: str) -> None:
    class Wrong(Partition):
        def deal(self, split: Split, users: int, rng: Rng) -> list[list[int]]:
            return parts

    with pytest.raises(ValueError, match=f"partition Wrong {why}"):
        dealt(Wrong(), np.zeros(4, np.int64), 2, np.random.default_rng(0))


@FEW
@given(labels, st.integers(1, 100), seeds)
def test_iid_hands_are_the_pieces_of_a_split(y: I64, users: int, seed: int) -> None:
    hands = Iid().deal(Split(y[:, None], y, y[:1, None], y[:1], 10), users, np.random.default_rng(seed))  # type: ignore[arg-type]
    pieces = np.array_split(np.random.default_rng(seed).permutation(len(y)), users)
    assert [hand.tolist() for hand in hands] == [sorted(piece.tolist()) for piece in pieces]
    assert [hands.size(user) for user in range(users)] == [len(piece) for piece in pieces]


@FEW
@given(st.integers(1, 40), st.integers(1, 30), seeds)
def test_drawn_samples_of_a_user_ignore_other_users(n: int, samples: int, seed: int) -> None:
    """Of 5 users and of 10 million, the same samples: distinct, and as many as asked for."""
    assume(samples <= n)
    y = np.zeros(n, np.int64)
    few, many = (dealt(Drawn(samples=samples), y, users, Streams(seed).rng("p")) for users in (5, 10**7))
    assert [few[user].tolist() for user in range(5)] == [many[user].tolist() for user in range(5)]
    assert {len(set(hand.tolist())) for hand in few} == {len(many[10**7 - 1])} == {samples}


def test_drawn_more_samples_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="samples=4 is above the 3 samples: lower it"):
        dealt(Drawn(samples=4), np.zeros(3, np.int64), 2, np.random.default_rng(0))


def test_drawn_samples_are_uniform() -> None:
    """3 of 10 samples for 10,000 users: each sample is of 3,000 users, give or take five deviations."""
    hands = dealt(Drawn(samples=3), np.zeros(10, np.int64), 10_000, np.random.default_rng(1))
    counts = np.bincount(np.concatenate(hands), minlength=10)
    assert np.abs(counts - 3000).max() < 5 * np.sqrt(10_000 * 0.3 * 0.7)
