"""simfl.crypto.ntt: points against galois, transforms against Python integers and the dense product."""

from itertools import product

import galois
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.crypto import butterflies, field, mds, ntt
from tests.sizes import examples

PRIMES = [5, 13, 17, 97, 257, 12289, 65537, 998244353, 2013265921, ntt.Q]
SMALL = [q for q in PRIMES if q < 300]


def values(Z, points, q):
    """The columns of Z as polynomials, lowest power first, at the points: Horner in Python integers."""
    out = np.zeros((len(points), Z.shape[1]), object)
    x = np.array([[p] for p in points], object)
    for row in Z[::-1].astype(object):
        out = (out * x + row) % q
    return out


def residues(rng, q, *shape):
    """Half of them extreme."""
    extremes = np.array([0, 1, q - 2, q - 1, q // 2], np.uint32)
    uniform = rng.integers(0, q, shape, dtype=np.uint32)
    return np.where(rng.random(shape) < 0.5, uniform, rng.choice(extremes, shape)).astype(np.uint32)


# --- points --------------------------------------------------------------------------------------
@pytest.mark.parametrize("q", SMALL)
def test_every_residue_but_zero_is_the_point_of_one_user(q):
    assert sorted(ntt.point(user, q) for user in range(q - 1)) == list(range(1, q))
    with pytest.raises(ValueError, match=f"user {q - 1} must be at least 0 and below q - 1={q - 1}"):
        ntt.point(q - 1, q)
    with pytest.raises(ValueError, match="user -1 must"):
        ntt.point(-1, q)


@pytest.mark.parametrize("q", PRIMES)
def test_the_first_points_are_the_roots_of_unity_of_every_order(q):
    GF = galois.GF(q, compile="python-calculate")
    assert ntt.generator(q) == int(galois.primitive_root(q, method="min"))
    n = 1
    while n <= min(ntt.order(q), 64):
        points = [ntt.point(user, q) for user in range(n)]
        assert len(set(points)) == n
        assert all(GF(p) ** n == 1 for p in points)
        assert ntt.roots(n, q).tolist() == points
        n *= 2
    assert int(GF(ntt.point(ntt.order(q) // 2, q)).multiplicative_order()) == ntt.order(q)


@pytest.mark.parametrize("q", PRIMES)
def test_points_form_a_tree_of_squares(q):
    for user in {*range(min(50, ntt.order(q))), ntt.order(q) - 1}:
        assert pow(ntt.point(user, q), 2, q) == ntt.point(user // 2, q)
        assert ntt.point(user ^ 1, q) == q - ntt.point(user, q)


def test_the_prime_has_its_stated_properties():
    rivals = range(2**31 - 2**16 + 1, ntt.Q, -(2**16))
    assert galois.is_prime(ntt.Q)
    assert not any(galois.is_prime(q) for q in rivals)
    assert ntt.order(ntt.Q) == 2**17
    assert ntt.BOUND - ntt.Q == ntt.BOUND // 16384 - 1  # words that the PRG rejects
    assert {q: ntt.order(q) for q in (field.Q, 2**31 - 1, 3, 3 * 2**30 + 1)} == {
        field.Q: 0,
        2**31 - 1: 0,
        3: 0,
        3 * 2**30 + 1: 0,  # a prime with many roots, but not below 2^31
    }


# --- transforms ----------------------------------------------------------------------------------
@pytest.mark.parametrize("q", PRIMES)
def test_a_transform_equals_galois_evaluation(q):
    n = min(ntt.order(q), 16)
    points, Z = ntt.roots(n, q).tolist(), residues(np.random.default_rng(1), q, n - 1, 6)
    got = ntt.evaluate(Z, ntt.plan(tuple(points), n - 1, q), q)
    GF = galois.GF(q, compile="python-calculate")
    expected = [galois.Poly([int(c) for c in column], field=GF, order="asc")(GF(points)) for column in Z.T]
    assert (got.astype(object) == np.array(expected, object).T).all()
    assert got.dtype == np.uint32


@settings(max_examples=examples(150), deadline=None)
@given(
    q=st.sampled_from([97, 257, 12289, 998244353, 2013265921, ntt.Q]),
    bits=st.integers(0, 7),
    m=st.integers(1, 40),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_any_subset_of_points_in_any_order(q, bits, m, seed, data):
    limit = min(2**bits, ntt.order(q))
    users = data.draw(st.lists(st.integers(0, limit - 1), min_size=1, unique=True))
    U = data.draw(st.integers(1, limit))
    rng = np.random.default_rng(seed)
    points, Z = mds.points_of(tuple(users), q), residues(rng, q, U, m)
    before = Z.copy()
    got = ntt.evaluate(Z, ntt.plan(points, U, q), q)
    assert (got.astype(object) == values(Z, points, q)).all()
    assert (got == field.matmul(mds.matrix(points, U, q), Z, q)).all()
    assert (before == Z).all()


@pytest.mark.parametrize("n", [4, 8, 16, 32, 64, 256, 512, 1024, 2048])
@pytest.mark.parametrize("q", [2013265921, ntt.Q])
def test_rows_of_the_largest_residue_at_every_size(q, n):
    # Every sum is as large as it gets; and sums of n rows of w are n w at 1 and nothing elsewhere.
    for w in (q - 1, q - 2, q // 2, 1, 0):
        got = ntt.evaluate(np.full((n, 3), w, np.uint32), ntt.plan(tuple(ntt.roots(n, q).tolist()), n, q), q)
        assert (got[0].astype(object) == n * w % q).all()
        assert not got[1:].any()


@pytest.mark.parametrize("m", [1, 15, 16, 17, 511, 512, 513, 1000, 1025])
def test_blocks_of_columns(m):
    Z, users = residues(np.random.default_rng(m), ntt.Q, 140, m), tuple(range(200))
    assert butterflies._BLOCK_WORDS // 256 == 512
    points = mds.points_of(users, ntt.Q)
    expected = field.matmul(mds.matrix(points, 140, ntt.Q), Z, ntt.Q)
    assert (ntt.evaluate(Z, ntt.plan(points, 140, ntt.Q), ntt.Q) == expected).all()
    assert (ntt.evaluate(Z.T.copy().T, ntt.plan(points, 140, ntt.Q), ntt.Q) == expected).all()


def test_many_users_far_apart():
    users = (0, 3, 4, 70, 4095, 1024, 1025)
    points, Z = mds.points_of(users, ntt.Q), residues(np.random.default_rng(2), ntt.Q, 5, 130)
    how = ntt.plan(points, 5, ntt.Q)
    assert how.rows_below.size == 4097
    assert (ntt.evaluate(Z, how, ntt.Q).astype(object) == values(Z, points, ntt.Q)).all()


@pytest.mark.parametrize("q", [5, 257, 2013265921, ntt.Q])
def test_a_factor_times_any_word_stays_below_2q(q):
    words = np.array(sorted({x + e for x in (1, q, 2 * q, 2**31, 2**32 - 2) for e in (-1, 0, 1)}), np.uint32)
    for w, x in product({1, 2, q // 2, q - 2, q - 1}, words):
        shoup = np.uint32((int(w) << 32) // q)
        got = int(butterflies._times(x, np.uint32(w), shoup, np.uint32(q)))
        assert got < 2 * q
        assert got % q == int(x) * w % q
    for x in (0, 1, q - 1, q, q + 1, 2 * q - 1):
        assert butterflies._reduced(np.uint32(x), np.uint32(q)) == x % q


# --- plans ---------------------------------------------------------------------------------------
def test_there_is_no_plan_where_points_are_not_distinct_roots():
    four = mds.points_of(range(4), ntt.Q)
    assert ntt.plan(four, 4, ntt.Q) is not None
    for points in ((*four, 2), (*four, four[2]), (*four, 0), (3,), (*four, four[1] + ntt.Q)):
        assert ntt.plan(points, 2, ntt.Q) is None
    assert ntt.plan(mds.points_of(range(4), 13), 5, 13) is None  # 13 has four roots
    assert ntt.plan(mds.points_of(range(5), 13), 2, 13) is None
    for q in (field.Q, 2**31 - 1, 3 * 2**30 + 1):
        assert ntt.plan((1,), 1, q) is None
        assert ntt.plan((1, q - 1), 2, q) is None


def test_points_stand_for_their_residues():
    points, U, q = mds.points_of(range(6), ntt.Q), 5, ntt.Q
    shifted = tuple(p + q * (k - 2) for k, p in enumerate(points))
    Z = residues(np.random.default_rng(3), q, U, 9)
    assert (ntt.evaluate(Z, ntt.plan(shifted, U, q), q).astype(object) == values(Z, points, q)).all()


def test_work_leaves_out_unwanted_rows():
    def work(users, U):
        return ntt.plan(mds.points_of(users, ntt.Q), U, ntt.Q).work

    assert work(range(256), 140) == 4 * 256
    assert work(range(200), 140) == 256 + 256 + 13 * 16 + 50 * 4
    assert work((5,), 140) == 256 + 64 + 16 + 4
    assert work((0, 255), 140) == 256 + 2 * (64 + 16 + 4)
    assert work((0,), 300) == 512 + 256 + 64 + 16 + 4
    assert work((0,), 1) == 4
