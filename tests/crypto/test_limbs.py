"""The product of simfl.crypto.field against galois and Python integers."""

import galois
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.crypto import loops
from simfl.crypto.field import exact_blocks, matmul, prepare
from tests.sizes import examples

Q = 2**32 - 5
PRIMES = [2, 3, 257, 65537, 2013265921, 2147352577, 2**31 - 1, Q]


def extremes(q):
    """Where centring or a limb turns over."""
    near = (0, q // 2, 2**15, 2**16, 2**31 - 2**15, q - 2**15, q - 2**16)
    return np.array(sorted({(x + e) % q for x in near for e in (-1, 0, 1)}), np.uint32)


def residues(rng, q, *shape):
    """Half of them extreme."""
    uniform = rng.integers(0, q, shape, dtype=np.uint32)
    return np.where(rng.random(shape) < 0.5, uniform, rng.choice(extremes(q), shape)).astype(np.uint32)


def integers(W, Z, q):
    """W Z mod q in Python integers."""
    if not W.shape[1]:
        return np.zeros((W.shape[0], Z.shape[1]), object)
    return W.astype(object) @ Z.astype(object) % q


def same(got, expected):
    return got.dtype == np.uint32 and got.shape == expected.shape and (got.astype(object) == expected).all()


@pytest.mark.parametrize("q", PRIMES)
def test_a_product_agrees_with_galois_and_python(q):
    rng = np.random.default_rng(1)
    W, Z = residues(rng, q, 7, 23), residues(rng, q, 23, 9)
    GF = galois.GF(q, compile="python-calculate")
    expected = np.asarray(GF(W.astype(object)) @ GF(Z.astype(object))).astype(object)
    assert (integers(W, Z, q) == expected).all()
    assert same(matmul(W, Z, q), expected)


@pytest.mark.parametrize("q", PRIMES)
def test_constant_matrices_of_extreme_values(q):
    values = extremes(q)
    Z = np.repeat(values[None], 1000, axis=0)
    for w in values:
        W = np.full((2, 1000), w, np.uint32)
        assert same(matmul(W, Z, q), np.array([[int(w) * int(z) * 1000 % q for z in values]] * 2, object)), w


@pytest.mark.parametrize("q", [3, 2013265921, 2147352577, 2**31 - 1, Q])
@settings(max_examples=examples(25), deadline=None)
@given(
    a=st.integers(1, 5),
    k=st.one_of(st.integers(0, 300), st.integers(2900, 3000), st.just(8001)),
    m=st.integers(0, 9),
    seed=st.integers(0, 2**32),
)
def test_any_shape_of_random_and_largest_residues(q, a, k, m, seed):
    rng = np.random.default_rng(seed)
    W, Z = residues(rng, q, a, k), residues(rng, q, k, m)
    W[0] = rng.choice(extremes(q))  # one row as large as it gets
    assert same(matmul(W, Z, q), integers(W, Z, q))


@pytest.mark.ci
@pytest.mark.parametrize(
    ("a", "k", "m"), [(3, 9, 0), (3, 9, 1), *((300, 9, m) for m in (511, 512, 513)), (3, 130, 4100)]
)
def test_tiles_and_views(a, k, m):
    rng = np.random.default_rng(m)
    W, Z = residues(rng, Q, a, 2 * k)[:, ::2], residues(rng, Q, m, k).T
    expected = integers(W, Z, Q)
    before = W.copy(), Z.copy()
    assert same(matmul(W, Z, Q), expected)
    assert (before[0] == W).all()
    assert (before[1] == Z).all()


def test_residues_next_to_zero_at_the_edge_of_53_bits():
    # The estimated quotient's rounding shows only here: at multiples of q, and at their neighbours.
    # Below a power of two doubles are denser, and a 1 / q rounded down (as for 103) falls short of it.
    rng = np.random.default_rng(3)
    for q in [*PRIMES, 103, 347, 443]:
        top = (2**53 - 2**49) // q
        powers = 1 << np.arange(top.bit_length() - 1)
        multiples = np.concatenate([rng.integers(-top, top, 50_000), powers, -powers])
        x = (multiples[:, None] * q + np.arange(-2, 3)).astype(np.float64)
        expected = x.astype(np.int64) % q
        out = np.empty(x.shape, np.uint32)
        loops.residues(x, float(q), out)
        assert (out == expected).all(), q


def test_blocks_of_limbs_cover_the_columns_and_keep_the_bound():
    random = np.random.default_rng(4).integers(-(2**15), 2**15 + 1, (40, 1000))
    for case in (random, np.full((4, 1000), 2**15), np.zeros((4, 1000), np.int64)):
        blocks = exact_blocks(case, Q)
        assert [start for start, _ in blocks] == [0, *[end for _, end in blocks[:-1]]]
        assert blocks[-1][1] == 1000
        for start, end in blocks:
            assert int(np.abs(case[:, start:end]).sum(axis=1).max()) * (Q // 2) <= 2**53 - 2**49
            assert end == 1000 or end - start >= 120


@pytest.mark.parametrize("q", [2013265921, 2147352577, 2**31 - 1, Q])
def test_a_block_of_limbs_is_long(q):
    for w in extremes(q):
        _, blocks, _ = prepare(np.full((2, 1000), w, np.uint32).tobytes(), (2, 1000), q)
        assert all(end - start >= 120 for start, end in blocks[:-1]), w


def test_a_matrix_changed_in_place_is_another_matrix():
    W, Z = np.ones((3, 5), np.uint32), np.ones((5, 2), np.uint32)
    assert (matmul(W, Z, Q) == 5).all()
    W[:] = 2
    assert (matmul(W, Z, Q) == 10).all()
    assert (matmul(W, Z, 7) == 3).all()


def test_inner_sizes_must_agree():
    with pytest.raises(ValueError, match="inner sizes differ"):
        matmul(np.ones((2, 3), np.uint32), np.ones((2, 3), np.uint32), Q)
