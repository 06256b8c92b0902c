"""The compiled loops of quantisation, against plain numpy expressions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.crypto import prg, quantize
from simfl.crypto.field import Q
from tests.crypto.oracles import words
from tests.crypto.test_loops import (
    EDGES,
    FIELDS,
    NTT,
    plain_dequantise,
    plain_levels,
    plain_quantise,
    same,
    seed,
    vector,
)
from tests.sizes import examples

REALS = {
    np.float32: st.floats(width=32, allow_nan=False, allow_infinity=False),
    np.float64: st.floats(allow_nan=False, allow_infinity=False),
}


@settings(max_examples=examples(100), deadline=None)
@given(
    st.data(),
    st.sampled_from(list(REALS)),
    st.sampled_from([1e-3, 0.1, 1.0, 1.5, 3.7]),
    st.sampled_from([1, 3, 4, 1000, 2**16, 2**40]),
    st.integers(0, 2**20),
    st.sampled_from(FIELDS),
    st.booleans(),
)
def test_rounding_any_floats(data, dtype, clip, levels, weight, q, append):
    weight = min(weight, quantize.overflow_bound(q) - 1)
    near = st.floats(-2 * clip, 2 * clip).map(lambda x: float(dtype(x)))
    edges = st.sampled_from([0.0, -0.0, clip, -clip, clip / 2, 0.25, -0.25, 5e-324]).map(
        lambda x: float(dtype(x))
    )
    values = data.draw(st.lists(REALS[dtype] | near | edges, min_size=1, max_size=40))
    delta, s = np.array([values], dtype), seed(data.draw(st.integers(0, 9)))
    same(quantize.signed_levels(delta, clip, levels, s), plain_levels(delta, clip, levels, s))
    expected = plain_quantise(delta, weight, clip, levels, s, q, append)
    same(quantize.quantise(delta, weight, clip, levels, s, q, append), expected)
    assert quantize.count_clipped(delta, clip) == np.count_nonzero(np.abs(delta) > clip)


@pytest.mark.parametrize("length", EDGES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rounding_across_blocks(length, dtype):
    delta = np.random.default_rng(length).normal(0, 0.7, (1, length)).astype(dtype)
    same(quantize.signed_levels(delta, 1.0, 2**16, seed(1)), plain_levels(delta, 1.0, 2**16, seed(1)))
    for weight, q in ((1, Q), (7, Q), (2**15 - 1, Q), (2**20, Q), (1, 257), (100, 257), (1, NTT)):
        for append in (False, True):
            expected = plain_quantise(delta, weight, 1.0, 2**16, seed(1), q, append)
            same(quantize.quantise(delta, weight, 1.0, 2**16, seed(1), q, append), expected)
    assert quantize.count_clipped(delta, 0.7) == np.count_nonzero(np.abs(delta) > 0.7)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_products_around_the_field_s_size(over):
    # |weight level| reaches weight levels; from q on one addition of q would not do.
    q, levels = 2**31 - 1, 2**16
    weight = (q + over) // (levels + 1) + over
    delta = np.array([[-1.0, 1.0, -0.999999, 0.999999, 0.0]])
    same(
        quantize.quantise(delta, weight, 1.0, levels, seed(1), q, False),
        plain_quantise(delta, weight, 1.0, levels, seed(1), q, False),
    )
    for q, weight, clip, levels in (
        (5, 1, 1.0, 4),
        (5, 1, 1.0, 5),
        (5, 1, 0.9, 5),
        (7, 1, 1.0, 4),
        (11, 2, 1.0, 5),
    ):
        delta = np.linspace(-1, 1, 99)[None]
        expected = plain_quantise(delta, weight, clip, levels, seed(2), q, False)
        same(quantize.quantise(delta, weight, clip, levels, seed(2), q, False), expected)


def test_a_threshold_that_is_met_exactly_rounds_down():
    delta = (words(seed(1), 50).astype(np.float64) - 2**31) / 2**32 + 0.5
    assert not quantize.signed_levels(delta, 1.0, 1, seed(1)).any()
    same(quantize.signed_levels(delta, 1.0, 1, seed(1)), plain_levels(delta, 1.0, 1, seed(1)))


def test_clipping_is_counted_in_the_update_s_own_precision():
    delta = np.array([[np.float32(0.1), -np.float32(0.1), np.nan, np.inf, -np.inf, 0.0]], np.float32)
    for clip in (0.1, np.float32(0.1), np.float64(0.1), 1, 0, np.inf):
        assert quantize.count_clipped(delta, clip) == np.count_nonzero(np.abs(delta) > clip), repr(clip)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("place", [0, 1, prg.BLOCK - 1, prg.BLOCK, prg.BLOCK + 5])
def test_infinite_values_are_found_at_any_place(bad, dtype, place):
    delta = np.zeros((1, prg.BLOCK + 6), dtype)
    delta[0, place] = bad
    text = f"coordinate {place} of the update is {dtype(bad)}: not finite"
    with pytest.raises(ValueError, match=text):
        quantize.signed_levels(delta, 1.0, 4, seed(1))
    for weight, q in ((1, Q), (50, 257)):
        with pytest.raises(ValueError, match=text):
            quantize.quantise(delta, weight, 1.0, 4, seed(1), q, True)


def test_rounding_takes_one_row():
    with pytest.raises(ValueError, match="one row"):
        quantize.signed_levels(np.zeros((2, 5)), 1.0, 4, seed(1))


@pytest.mark.parametrize("q", FIELDS)
@pytest.mark.parametrize("length", EDGES[1:])
def test_dequantise(q, length):
    total = vector(np.random.default_rng(length), q, length)
    total[0, -1] = 1 if q > 3 else 0  # the divisor, if positive
    for levels, divisor in ((1, 1), (3, 7), (2**16, 2**20), (2**40, 10**12)):
        same(quantize.dequantise(total, levels, divisor, q), plain_dequantise(total, levels, divisor, q))
    if q > 3:
        same(quantize.dequantise(total, 49, None, q), plain_dequantise(total, 49, None, q))
