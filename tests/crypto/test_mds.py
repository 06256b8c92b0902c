"""simfl.crypto.mds: decoding, and T-privacy by brute force over a small field."""

from hashlib import blake2b
from itertools import combinations, product

import galois
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.crypto import field, mds, ntt, prg
from simfl.crypto.field import Q
from tests.crypto.oracles import inverse
from tests.sizes import examples

SEED = np.arange(32, dtype=np.uint8).reshape(1, 32)


def seed(n):
    entropy = blake2b(str(n).encode(), key=bytes(32), digest_size=32).digest()
    return np.frombuffer(entropy, np.uint8).reshape(1, 32)


@pytest.mark.parametrize("q", [7, 2**31 - 1, Q])
def test_matrix_is_galois_vandermonde(q):
    points = [1, 2, 3, 5, 6]
    GF = galois.GF(q, compile="python-calculate")
    expected = np.array([[int(GF(p) ** k) for k in range(4)] for p in points])
    assert (mds.matrix(tuple(points), 4, q) == expected).all()


def test_matrix_is_cached_and_read_only():
    W = mds.matrix((1, 2, 3), 2, Q)
    assert W is mds.matrix((1, 2, 3), 2, Q)
    with pytest.raises(ValueError, match="read-only"):
        W[0, 0] = 5


@pytest.mark.parametrize("q", [3, 103, 2**31 - 1, 3 * 2**30 + 1, Q])
def test_a_users_point_without_a_transform(q):
    assert mds.points_of((4, 0, 1), q) == (5, 1, 2)


def test_a_users_point_with_a_transform():
    g = pow(ntt.generator(ntt.Q), (ntt.Q - 1) // 8, ntt.Q)
    exponents = (0, 4, 2, 6, 1, 5, 3, 7)  # u with its three bits reversed
    assert mds.points_of(tuple(range(8)), ntt.Q) == tuple(pow(g, e, ntt.Q) for e in exponents)
    assert mds.points_of((6, 2), ntt.Q) == (pow(g, 3, ntt.Q), pow(g, 2, ntt.Q))


@settings(max_examples=examples(60), deadline=None)
@given(
    users=st.lists(st.integers(0, 300), min_size=1, max_size=40, unique=True),
    sizes=st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 300)),
    n=st.integers(0, 1000),
)
def test_transform_and_product_encode_to_the_same_bits(users, sizes, n):
    q, points = ntt.Q, mds.points_of(tuple(users), ntt.Q)
    U = 1 + sizes[0] % len(users)
    T, d = sizes[1] % U, sizes[2]
    z, rows = prg.expand(seed(n), d, q), {}
    for transform in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mds, "transform_is_faster", lambda *_: transform)  # noqa: B023
            rows[transform] = mds.encode(z, SEED, points, U, T, q)
    assert rows[True].dtype == np.uint32
    assert (rows[True] == rows[False]).all()
    who = np.random.default_rng(n).permutation(len(users))[:U]
    assert (mds.decode(rows[True][who], [points[j] for j in who], U, T, d, q) == z).all()


@pytest.mark.parametrize(
    ("users", "U", "taken"),
    [
        (range(10), 7, True),
        (range(200), 140, True),
        (range(200), 5, True),
        (range(0, 1000, 5), 140, False),  # 200 points among 1,024 roots
        (range(0, 2**17, 2**17 // 100), 70, False),
    ],
)
def test_a_transform_is_taken_where_the_sizes_say_so(users, U, taken, monkeypatch):
    used = []
    monkeypatch.setattr(ntt, "evaluate", lambda Z, how, q: used.append(q))
    monkeypatch.setattr(mds, "matmul", lambda *_: None)
    points = mds.points_of(tuple(users), ntt.Q)
    mds.encode(np.ones((1, 40), np.uint32), SEED, points, U, U - 4, ntt.Q)
    assert bool(used) is taken


@pytest.mark.parametrize(
    ("n", "U", "q", "found"),
    [
        (200, 140, Q, 28_000),
        (200, 140, 2**31 - 1, 28_000),  # 4 does not divide q - 1
        (200, 140, ntt.Q, 0),
        (4, 3, 13, 0),  # 4 roots of unity, 12 = 4 x 3
        (5, 3, 13, 15),
        (3, 5, 13, 15),
    ],
)
def test_coefficients_are_found_where_there_is_no_transform(n, U, q, found):
    assert mds.coefficients(n, U, q) == found
    points = mds.points_of(tuple(range(n)), q)
    assert (ntt.plan(points, U, q) is None) == (found > 0)
    if found:
        assert mds.matrix(tuple(points), U, q).size == found


def test_where_there_is_no_transform_a_product_codes(monkeypatch):
    monkeypatch.setattr(ntt, "evaluate", lambda *_: pytest.fail("transformed"))
    monkeypatch.setattr(mds, "transform_is_faster", lambda *_: True)
    for points, q in (((1, 2, 3), Q), ((1, 2, 3), ntt.Q), (mds.points_of((0, 1, 2, 3, 4), 13), 13)):
        z = prg.expand(seed(1), 7, q)
        rows = mds.encode(z, SEED, points, 2, 1, q)
        assert (mds.decode(rows[1:3], points[1:3], 2, 1, 7, q) == z).all()


@st.composite
def codes(draw):
    q = draw(st.sampled_from([101, 2**31 - 1, Q]))
    U = draw(st.integers(1, 9))
    T = draw(st.integers(0, U - 1))
    points = draw(st.lists(st.integers(1, q - 1), min_size=U, max_size=U + 5, unique=True))
    who = draw(st.permutations(range(len(points))))[:U]
    return q, U, T, points, who, draw(st.integers(1, 40))


@settings(max_examples=examples(150), deadline=None)
@given(codes(), st.integers(0, 1000))
def test_any_U_rows_decode_in_any_order(code, n):
    q, U, T, points, who, d = code
    z = prg.expand(seed(n), d, q)
    before = z.copy()
    rows = mds.encode(z, SEED, points, U, T, q)
    assert rows.dtype == np.uint32
    assert rows.shape == (len(points), mds.share_length(d, U, T))
    back = mds.decode(rows[list(who)], [points[j] for j in who], U, T, d, q)
    assert back.shape == (1, d)
    assert (back == z).all()
    assert (z == before).all()


def test_weighted_sums_of_rows_decode_to_those_of_masks():
    U, T, d, points, weights = 7, 3, 26, list(range(1, 11)), [3, 1, Q - 2]
    masks = [prg.expand(seed(n), d, Q) for n in range(3)]
    coded = [mds.encode(z, seed(10 + n), points, U, T, Q) for n, z in enumerate(masks)]
    who = [9, 0, 3, 4, 5, 7, 8]
    sums = np.vstack([field.weighted_sum([c[j : j + 1] for c in coded], weights, Q) for j in who])
    back = mds.decode(sums, [points[j] for j in who], U, T, d, Q)
    assert (back == field.weighted_sum(masks, weights, Q)).all()


def test_encode_follows_equation_5():
    U, T, d, points = 5, 2, 8, [4, 9, 1]
    z = prg.expand(seed(1), d, Q)
    sub_masks = [[int(v) for v in z[0, i : i + 3]] for i in (0, 3, 6)]
    sub_masks[2].append(0)
    noise = prg.expand(SEED, T * 3, Q)[0].tolist()
    parts = [*sub_masks, noise[:3], noise[3:]]
    expected = [[sum(parts[k][c] * p**k for k in range(U)) % Q for c in range(3)] for p in points]
    assert mds.encode(z, SEED, points, U, T, Q).tolist() == expected


def test_the_paper_s_size_decodes():
    U, T, d, points = 140, 100, 1000, range(1, 201)
    z = prg.expand(seed(2), d, Q)
    rows = mds.encode(z, SEED, points, U, T, Q)
    who = np.random.default_rng(1).permutation(200)[:U]
    assert (mds.decode(rows[who], [int(j) + 1 for j in who], U, T, d, Q) == z).all()


@pytest.mark.parametrize("q", [31, 2**31 - 1, Q])
def test_interpolation_is_the_inverse_that_elimination_finds(q):
    points = [3, 1, 7, 30, 12, 5, 4]
    assert (mds.interpolation(points, 7, q) == inverse(mds.matrix(tuple(points), 7, q), q)).all()


@pytest.mark.parametrize("q", [11, 13, 17, ntt.Q, Q])
@pytest.mark.parametrize(("U", "T"), [(3, 1), (4, 2), (5, 3), (6, 5)])
def test_every_lower_minor_is_invertible(q, U, T):
    noise_part = mds.matrix(mds.points_of(tuple(range(8)), q), U, q)[:, U - T :]
    for rows in combinations(range(8), T):
        inverse(noise_part[list(rows)], q)  # raises if singular


@pytest.mark.parametrize(("q", "n"), [(7, 6), (5, 4)])
@pytest.mark.parametrize(("U", "T"), [(2, 1), (3, 2), (4, 2), (4, 3)])
def test_T_rows_are_uniform_whatever_the_mask(U, T, q, n):
    # Over F_q, all q^T noise vectors give each of the q^T values of any T rows exactly once.
    noise = np.array(list(product(range(q), repeat=T)), np.uint32).T
    points = mds.points_of(tuple(range(n)), q)
    for mask in ([0] * (U - T), [q - 1] * (U - T), [3, 4, 1][: U - T]):
        message = np.vstack([np.repeat(np.array([mask], np.uint32).T, noise.shape[1], axis=1), noise])
        coded = field.matmul(mds.matrix(tuple(points), U, q), message, q)
        for rows in combinations(range(n), T):
            assert len({tuple(column) for column in coded[list(rows)].T.tolist()}) == q**T


def test_noise_is_the_whole_expansion_of_the_seed():
    # What encode itself draws: subtracting the coded mask leaves the noise, through an invertible minor.
    U, T, d, points = 5, 3, 10, [1, 2, 3]
    z = prg.expand(seed(3), d, Q)
    coded = mds.encode(z, SEED, points, U, T, Q)
    W = mds.matrix(tuple(points), U, Q)
    plain = field.matmul(W[:, : U - T], z.reshape(U - T, -1), Q)
    noise = field.matmul(inverse(W[:, U - T :], Q), field.sub(coded, plain, Q), Q)
    assert (noise.reshape(1, -1) == prg.expand(SEED, T * 5, Q)).all()


def test_share_length():
    assert mds.share_length(1_206_590, 140, 100) == 30_165
    assert mds.share_length(1, 5, 0) == 1
    assert mds.share_length(10, 5, 0) == 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mds.share_length(10, 5, 5), "T=5 must be at least 0 and below U=5"),
        (lambda: mds.share_length(10, 5, -1), "T=-1"),
        (lambda: mds.share_length(0, 5, 1), "d=0 must be at least 1"),
        (lambda: mds.matrix((1, 2), 0, 7), "U=0 must be at least 1"),
        (lambda: mds.matrix((1, 14), 2, 7), "point 14 is zero modulo q=7"),
        (lambda: mds.matrix((1, 2, 8), 2, 7), "point 8 appears twice modulo q=7"),
        (lambda: mds.decode(np.zeros((3, 4), np.uint32), [1, 2], 3, 1, 8, 7), "exactly U=3 points, not 2"),
        (lambda: mds.decode(np.zeros((3, 5), np.uint32), [1, 2, 3], 3, 1, 8, 7), "U = 3 of m = 4, not 3 of "),
        (lambda: mds.decode(np.zeros((3, 4), np.uint32), [1, 2, 2], 3, 1, 8, 7), "point 2 appears twice"),
    ],
)
def test_bad_parameters_name_value_and_bound(call, words):
    with pytest.raises(ValueError, match=words):
        call()
