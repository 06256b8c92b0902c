"""simfl.crypto.product: every backend against galois and Python integers, and how one is chosen."""

import threading

import galois
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.crypto import digits, field, limbs, loops, mds, ntt, product

Q = 2**32 - 5
PRIMES = [2, 3, 257, 65537, 2013265921, 2147352577, 2**31 - 1, Q]
FAST = ["limbs", "digits"]


@pytest.fixture(autouse=True)
def undecided():
    """Each test chooses for itself."""
    product.use("auto")
    digits.available.cache_clear()
    yield
    product.use("auto")
    digits.available.cache_clear()


def require(name):
    if not product.BACKENDS[name].available():
        pytest.skip(f"{name} cannot be used on this machine")
    return product.BACKENDS[name].matmul


def extremes(q):
    """Where centring, a limb or a digit turns over."""
    half = q // 2
    near = (0, half, 2**15, 2**16, 2**31 - 2**15, q - 2**15, q - 2**16, 128, 0x7F7F7F7F, 0x80808080, q - 128)
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
@pytest.mark.parametrize("name", product.BACKENDS)
def test_every_backend_agrees_with_galois_and_python(name, q):
    rng = np.random.default_rng(1)
    W, Z = residues(rng, q, 7, 23), residues(rng, q, 23, 9)
    GF = galois.GF(q, compile="python-calculate")
    expected = np.asarray(GF(W.astype(object)) @ GF(Z.astype(object))).astype(object)
    assert (integers(W, Z, q) == expected).all()
    assert same(require(name)(W, Z, q), expected)


@pytest.mark.parametrize("q", PRIMES)
@pytest.mark.parametrize("name", FAST)
def test_constant_matrices_of_extreme_values(name, q):
    matmul = require(name)
    values = extremes(q)
    Z = np.repeat(values[None], 1000, axis=0)
    for w in values:
        W = np.full((2, 1000), w, np.uint32)
        assert same(matmul(W, Z, q), np.array([[int(w) * int(z) * 1000 % q for z in values]] * 2, object)), w


@pytest.mark.parametrize("q", [3, 2013265921, 2147352577, 2**31 - 1, Q])
@pytest.mark.parametrize("name", FAST)
@settings(max_examples=25, deadline=None)
@given(
    a=st.integers(1, 5),
    k=st.one_of(st.integers(0, 300), st.integers(2900, 3000), st.just(2 * digits.BLOCK + 1)),
    m=st.integers(0, 9),
    seed=st.integers(0, 2**32),
)
def test_any_shape_of_random_and_largest_residues(name, q, a, k, m, seed):
    rng = np.random.default_rng(seed)
    W, Z = residues(rng, q, a, k), residues(rng, q, k, m)
    W[0] = rng.choice(extremes(q))  # one row as large as it gets
    assert same(require(name)(W, Z, q), integers(W, Z, q))


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("m", [0, 1, 383, 384, 385, 1001])
def test_tiles_and_views(name, m):
    rng = np.random.default_rng(m)
    W, Z = residues(rng, Q, 40, 2 * 130)[:, ::2], residues(rng, Q, m, 130).T
    expected = integers(W, Z, Q)
    before = W.copy(), Z.copy()
    assert same(require(name)(W, Z, Q), expected)
    assert (before[0] == W).all()
    assert (before[1] == Z).all()


@pytest.mark.parametrize("q", [3, 2147352577, Q])
def test_backends_agree_over_several_tiles(q):
    rng = np.random.default_rng(2)
    W, Z = residues(rng, q, 200, 300), residues(rng, q, 300, 3001)
    assert (require("digits")(W, Z, q) == require("limbs")(W, Z, q)).all()


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
        blocks = limbs.exact_blocks(case, Q)
        assert [start for start, _ in blocks] == [0, *[end for _, end in blocks[:-1]]]
        assert blocks[-1][1] == 1000
        for start, end in blocks:
            assert int(np.abs(case[:, start:end]).sum(axis=1).max()) * (Q // 2) <= 2**53 - 2**49
            assert end == 1000 or end - start >= 120


def test_blocks_of_digits_keep_both_bounds():
    inner = 4 * digits.BLOCK * 2**14
    assert inner < 2**31
    assert inner * (1 + 2**8 + 2**16 + 2**24) + Q < 2**53 - 2 * Q


def test_many_blocks_of_digits_add_up():
    # Rotations of its bytes: the top digit of each multiple of w is 112, every sum is about as large as it
    # can be, and 12 of them would pass 53 bits if they were not reduced first.
    k = 12 * digits.BLOCK
    W = np.full((1, k), 0x70707070, np.uint32)
    Z = np.random.default_rng(7).integers(0, 2, (k, 5), np.uint32) * np.uint32(0x01010101)
    expected = [0x70707070 * int(column) % Q for column in Z.sum(axis=0, dtype=np.uint64)]
    for name in FAST:
        assert same(require(name)(W, Z, Q), np.array([expected], object))


@pytest.mark.parametrize("q", [2013265921, 2147352577, 2**31 - 1, Q])
def test_a_block_of_limbs_is_long(q):
    for w in extremes(q):
        blocks = limbs.prepare(np.full((2, 1000), w, np.uint32).tobytes(), (2, 1000), q).blocks
        assert all(end - start >= 120 for start, end in blocks[:-1]), w


@pytest.mark.parametrize("q", PRIMES)
def test_signed_digits_stand_for_the_residue(q):
    x = np.concatenate([extremes(q), np.random.default_rng(5).integers(0, q, 1000)]).astype(np.uint64)
    value = sum(d.astype(np.int64) << (8 * i) for i, d in enumerate(digits.signed_digits(x, q)))
    assert (value % q == x.astype(np.int64)).all()
    assert set((value - x.astype(np.int64)).tolist()) <= {0, -q}


def test_a_matrix_changed_in_place_is_another_matrix():
    W, Z = np.ones((3, 5), np.uint32), np.ones((5, 2), np.uint32)
    for name in FAST:
        W[:] = 1
        assert (require(name)(W, Z, Q) == 5).all()
        W[:] = 2
        assert (require(name)(W, Z, Q) == 10).all()
        assert (require(name)(W, Z, 7) == 3).all()


def saturating(left, right):
    """torch._int_mm without VNNI: (a + 128) b in pairs whose sums stop at 16 bits."""
    a = left.numpy().astype(np.int64) + 128
    b = right.numpy().astype(np.int64)
    total = np.zeros((a.shape[0], b.shape[1]), np.int64)
    for k in range(0, a.shape[1], 2):
        total += np.clip(a[:, k : k + 2] @ b[k : k + 2], -(2**15), 2**15 - 1)
    return torch.from_numpy((total - 128 * b.sum(axis=0)).astype(np.int32))


def in_float32(left, right):
    return (left.float() @ right.float()).to(torch.int32)


def missing(left, right):
    raise RuntimeError("not implemented for CPU")


@pytest.mark.parametrize("fake", [saturating, in_float32, missing])
def test_an_inexact_int8_product_is_never_chosen(fake, monkeypatch):
    monkeypatch.setattr(torch, "_int_mm", fake)
    monkeypatch.setattr(digits, "BLOCK", 1100)  # the fake is slow
    assert not digits.available()
    assert product.chosen() == "limbs"
    assert dict(product.describe())["digits"].startswith("not available; ")
    with pytest.raises(ValueError, match=r"backend=digits .* cannot be used"):
        product.use("digits")
    assert product.chosen() == "limbs"


def test_without_the_function_or_torch_there_are_no_digits(monkeypatch):
    with monkeypatch.context() as m:
        m.delattr(torch, "_int_mm")
        assert not digits.available()
    digits.available.cache_clear()
    with monkeypatch.context() as m:
        m.setitem(__import__("sys").modules, "torch", None)
        assert not digits.available()


@pytest.mark.parametrize("fastest", FAST)
def test_the_fastest_is_chosen_once_and_remembered(fastest, monkeypatch):
    calls = []

    def measure(names):
        calls.append(names)
        return {name: 1.0 if name == fastest else 2.0 for name in names}

    monkeypatch.setattr(product, "measure", measure)
    monkeypatch.setattr(digits, "available", lambda: True)
    monkeypatch.setitem(
        product.BACKENDS, "digits", product.Backend(digits.matmul, lambda: True, "digits, said to be there")
    )
    assert [product.chosen() for _ in range(3)] == [fastest] * 3
    assert calls == [[*FAST, "ntt"]]  # and never the reference
    product.use("galois")
    assert product.chosen() == "galois"
    product.use("auto")
    assert product.chosen() == fastest
    with pytest.raises(ValueError, match="backend=abacus must be one of auto, limbs, digits, galois, ntt"):
        product.use("abacus")


def plan(users, U):
    return ntt.plan(mds.points_of(tuple(users), ntt.Q), U, ntt.Q)


def test_a_transform_is_taken_where_it_is_expected_to_be_faster(monkeypatch):
    speeds = {"limbs": 3.0, "digits": 2.0, "ntt": 0.5}
    monkeypatch.setattr(product, "measure", lambda names: {name: speeds[name] for name in names})
    monkeypatch.setattr(digits, "available", lambda: False)  # then its speed does not count
    monkeypatch.setitem(
        product.BACKENDS, "digits", product.Backend(digits.matmul, digits.available, "not there")
    )
    assert product.transforms(plan(range(200), 140), 140, 30_165)
    # At the shape that is measured the ratio is 0.5 to 3. Here a transform of 2^17 rows for 100 points ...
    far = plan(range(0, 2**17, 2**17 // 100), 70)
    assert far.work > 3 * 2**17
    assert not product.transforms(far, 70, 30_165)
    # ... and one that breaks even at some speed: 46 x 46 multiplications for its rows, 200 x 140 for 920.
    near = plan(range(46), 46)
    assert near.work == 64 + 3 * 16 + 12 * 4
    even = 3.0 * (46 * 46 / near.work) / (200 * 140 / 920)
    for speed, taken in ((0.99 * even, True), (1.01 * even, False)):
        speeds["ntt"] = speed
        product.use("auto")
        assert product.transforms(near, 46, 30_165) is taken


def test_a_transform_is_taken_or_not_as_asked(monkeypatch):
    monkeypatch.setattr(product, "measure", lambda names: pytest.fail("measured"))
    how = plan(range(200), 140)
    product.use("ntt")
    assert product.transforms(how, 140, 1)
    for name in ("limbs", "galois"):
        product.use(name)
        assert not product.transforms(how, 140, 30_165)
    product.use("auto")
    assert not product.transforms(how, 140, product.SMALL // (200 * 140))  # small


def test_with_ntt_products_take_the_fastest(monkeypatch):
    monkeypatch.setattr(product, "measure", lambda names: {n: 1.0 + (n == "digits") for n in names})
    product.use("ntt")
    assert product.chosen() == "limbs"


def test_only_large_products_ask_for_the_choice(monkeypatch):
    used = []
    real = limbs.matmul
    monkeypatch.setattr(product, "measure", lambda names: pytest.fail("measured"))
    backend = product.Backend(lambda *args: used.append(1) or real(*args), lambda: True, "counts")
    monkeypatch.setitem(product.BACKENDS, "galois", backend)
    small, large = np.ones((64, 256), np.uint32), np.ones((256, 256), np.uint32)
    assert (field.matmul(small, large[:, :255], Q) == 256).all()
    assert not used
    product.use("galois")
    assert (field.matmul(small, large, Q) == 256).all()
    assert used == [1]


def test_threads_wait_for_one_measurement_and_agree(monkeypatch):
    calls, results = [], []
    real, start = product.measure, threading.Barrier(4)
    monkeypatch.setattr(product, "measure", lambda names: calls.append(1) or real(names))
    rng = np.random.default_rng(6)
    W, Z = residues(rng, Q, 64, 128), residues(rng, Q, 128, 700)

    def work():
        start.wait()
        results.extend(field.matmul(W, Z, Q).tobytes() for _ in range(3))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]
    assert len(results) == 12
    assert set(results) == {limbs.matmul(W, Z, Q).tobytes()}


def test_describe_names_every_backend_and_the_chosen_one():
    rows = product.describe()
    assert [name for name, _ in rows] == [*product.BACKENDS, "ntt"]
    chosen = product.chosen()
    assert [name for name, text in rows if ", chosen; " in text] == [chosen]
    assert all(" x a float64 product's time" in text or "not available" in text for _, text in rows)


def test_inner_sizes_must_agree():
    with pytest.raises(ValueError, match="inner sizes differ"):
        product.matmul(np.ones((2, 3), np.uint32), np.ones((2, 3), np.uint32), Q)
