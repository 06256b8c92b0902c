"""simfl.crypto.quantize: unbiased, invertible, and exact at the edge of the field."""

import math
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.crypto import field, quantize
from simfl.crypto.field import Q
from tests.crypto.oracles import words
from tests.sizes import examples

SEED = np.arange(32, dtype=np.uint8).reshape(1, 32)


def seed(n):
    entropy = blake2b(str(n).encode(), key=bytes(32), digest_size=32).digest()
    return np.frombuffer(entropy, np.uint8).reshape(1, 32)


def row(*values, dtype=np.float64):
    return np.array([values], dtype)


@settings(max_examples=examples(100), deadline=None)
@given(
    values=st.lists(st.floats(-3, 3), min_size=1, max_size=30),
    levels=st.integers(1, 2**20),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_rounding_follows_equation_29(values, levels, dtype):
    delta = row(*values, dtype=dtype)
    before = delta.copy()
    got = quantize.signed_levels(delta, 1.5, levels, SEED)
    assert got.dtype == np.int64
    assert got.shape == delta.shape
    thresholds = words(SEED, len(values))[0]
    for value, threshold, result in zip(delta[0], thresholds, got[0], strict=True):
        x = min(max(float(value), -1.5), 1.5) * levels
        up = int(threshold) / 2**32 < x - math.floor(x)
        assert result == math.floor(x) + up
    assert (delta == before).all()


@pytest.mark.parametrize("x", [0.0, 0.1, 0.5, 0.999, -0.001, -0.3, -0.9, 2.75, -2.75])
def test_rounding_is_unbiased(x):
    # Values lie in [floor, floor + 1]: the mean of n is off by more than eps with probability at most
    # 2 exp(-2 n eps^2) (Hoeffding) = 1e-9 for n = 200,000 and eps = 0.00732.
    n, levels = 200_000, 4
    got = quantize.signed_levels(np.full((1, n), x / levels), 1.0, levels, seed(x))
    assert set(np.unique(got)) <= {math.floor(x), math.floor(x) + 1}
    assert abs(got.mean() - x) < 0.00732


def test_integers_are_never_rounded():
    delta = row(-1.0, -0.25, 0.0, 0.25, 1.0, 7.0, -7.0)
    for n in range(20):
        assert quantize.signed_levels(delta, 1.0, 4, seed(n)).tolist() == [[-4, -1, 0, 1, 4, 4, -4]]


def test_clipping():
    delta = row(-3.0, -1.0, 0.5, 1.0, 1.0001, 9.0)
    assert quantize.count_clipped(delta, 1.0) == 3
    assert quantize.count_clipped(delta, 10.0) == 0
    assert np.abs(quantize.signed_levels(delta, 1.0, 1000, SEED)).max() == 1000


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_quantise_refuses_infinite_values(bad):
    with pytest.raises(ValueError, match=r"coordinate 1 of the update is .*: not finite"):
        quantize.signed_levels(row(0.5, bad, dtype=np.float32), 1.0, 4, SEED)
    with pytest.raises(ValueError, match="not finite"):
        quantize.quantise(row(0.5, bad), 1, 1.0, 4, SEED, Q, False)


@pytest.mark.parametrize(("clip", "levels"), [(0.0, 4), (-1.0, 4), (np.nan, 4), (1.0, 0), (1.0, 2**52)])
def test_bad_ranges_are_refused(clip, levels):
    with pytest.raises(ValueError, match="must be positive"):
        quantize.signed_levels(row(0.5), clip, levels, SEED)


@pytest.mark.parametrize("q", [101, 2**31 - 1, Q])
def test_signed_follows_equation_36(q):
    half = (q - 1) // 2
    x = np.array([[0, 1, half - 1, half, half + 1, q - 1]], np.uint32)
    got = quantize.signed(x, q)
    assert got.dtype == np.int64
    assert got.tolist() == [[0, 1, half - 1, half - q, half + 1 - q, -1]]


def test_magnitudes_below_the_bound_come_back():
    q = 101
    bound = quantize.overflow_bound(q)
    inside = np.arange(-bound + 1, bound)
    assert (quantize.signed((inside % q).astype(np.uint32)[None], q) == inside).all()
    assert quantize.signed(np.array([[bound]], np.uint32), q)[0, 0] != bound
    assert quantize.overflow_bound(Q) == 2147483645


def test_quantise_is_phi_of_the_weighted_levels():
    delta = np.linspace(-2, 2, 50)[None]
    levels = quantize.signed_levels(delta, 1.0, 1000, SEED)[0].tolist()
    got = quantize.quantise(delta, 7, 1.0, 1000, SEED, Q, False)
    assert got.dtype == np.uint32
    assert got[0].tolist() == [7 * v if v >= 0 else Q + 7 * v for v in levels]
    appended = quantize.quantise(delta, 7, 1.0, 1000, SEED, Q, True)
    assert appended[0].tolist() == [*got[0].tolist(), 7]
    wrapped = quantize.quantise(delta, 7, 1.0, 1000, SEED, 101, False)
    assert wrapped[0].tolist() == [7 * v % 101 for v in levels]


def test_the_sum_in_the_field_is_the_weighted_mean():
    rng = np.random.default_rng(1)
    updates, weights, levels = rng.normal(size=(9, 1, 400)), [3, 1, 4, 1, 5, 9, 2, 6, 5], 2**16
    vectors = [
        quantize.quantise(u, w, 1.0, levels, seed(i), Q, True)
        for i, (u, w) in enumerate(zip(updates, weights, strict=True))
    ]
    total = field.weighted_sum(vectors, None, Q)
    got = quantize.dequantise(total, levels, None, Q)
    integers = sum(
        w * quantize.signed_levels(u, 1.0, levels, seed(i))
        for i, (u, w) in enumerate(zip(updates, weights, strict=True))
    )
    assert got.dtype == np.float64
    assert got.shape == (1, 400)
    assert (got == integers / (levels * sum(weights))).all()
    mean = sum(w * np.clip(u, -1, 1) for u, w in zip(updates, weights, strict=True)) / sum(weights)
    assert np.abs(got - mean).max() < 1 / levels
    assert (quantize.dequantise(total[:, :-1], levels, sum(weights), Q) == got).all()


def test_a_divisor_that_is_not_positive_leaves_no_update():
    for total in ([[5, 7, 0]], [[5, 7, Q - 1]]):
        mean = quantize.dequantise(np.array(total, np.uint32), 4, None, Q)
        assert mean.shape == (1, 2)
        assert not mean.any()
    with pytest.raises(ValueError, match="divisor=0"):
        quantize.dequantise(np.array([[5]], np.uint32), 4, 0, Q)


def test_quantise_bounds_the_weight():
    with pytest.raises(ValueError, match="weight=-1 must be at least 0"):
        quantize.quantise(row(0.5), -1, 1.0, 4, SEED, Q, False)
    with pytest.raises(ValueError, match=r"below \(q-1\)/2=50"):
        quantize.quantise(row(0.5), 50, 1.0, 4, SEED, 101, True)
    with pytest.raises(ValueError, match=r"below 2\^63"):
        quantize.quantise(row(0.5), 2**30, 1.0, 2**40, SEED, Q, True)


def test_round_weight_follows_equation_34():
    # s = 1/sqrt(1 + tau), c_g = 2^6; 4,000 draws miss their mean by eps with probability at most
    # 2 exp(-2 n eps^2) (Hoeffding) = 1e-9 for eps = 0.0518.
    s, levels = 1 / math.sqrt(3), 2**6
    draws = [quantize.round_weight(s, levels, seed(n)) for n in range(4000)]
    assert set(draws) == {36, 37}
    assert abs(np.mean(draws) - s * levels) < 0.0518
    assert quantize.round_weight(1.0, levels, SEED) == 64
    assert quantize.round_weight(2.5, levels, SEED) == 160
    assert isinstance(draws[0], int)
