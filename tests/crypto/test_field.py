"""simfl.crypto.field against Python integers and galois."""

import galois
import numpy as np
import pytest

from simfl.crypto import field
from simfl.crypto.field import Q

PRIMES = [2, 3, 7, 65537, 2**31 - 1, 2013265921, 4294967279, Q]


def worst(q):
    half = (q - 1) // 2
    return sorted(
        {x % q for x in (0, 1, q - 1, half - 1, half, half + 1, 2**15, 2**16, q - 2**15, q - 2**16)}
    )


def random(rng, q, *shape):
    """Residues, half of them worst cases."""
    uniform = rng.integers(0, q, shape, dtype=np.uint32)
    extreme = rng.choice(np.array(worst(q), np.uint32), shape)
    return np.where(rng.random(shape) < 0.5, uniform, extreme)


def objects(x):
    return np.asarray(x).astype(object)


def test_the_paper_s_prime_is_the_largest_below_2_32():
    assert galois.prev_prime(2**32) == Q


def test_is_prime_agrees_with_galois():
    numbers = [*range(-3, 2000), *range(2**32 - 300, 2**32), 2**31 - 1, 3215031751, 4294836197, 25326001]
    for n in numbers:
        assert field.is_prime(n) == (n > 1 and galois.is_prime(n)), n
    assert not any(field.is_prime(n) for n in (561, 1105, 1729, 2047, 2465, 41041, 825265))
    with pytest.raises(ValueError, match="below 2"):
        field.is_prime(2**32)


@pytest.mark.parametrize("q", PRIMES)
def test_add_and_sub_on_all_pairs_of_worst_residues(q):
    a, b = np.meshgrid(np.array(worst(q), np.uint32), np.array(worst(q), np.uint32))
    before = a.copy(), b.copy()
    assert (objects(field.add(a, b, q)) == (objects(a) + objects(b)) % q).all()
    assert (objects(field.sub(a, b, q)) == (objects(a) - objects(b)) % q).all()
    assert (a == before[0]).all()
    assert (b == before[1]).all()


def test_add_refuses_different_shapes():
    a = np.zeros((2, 5), np.uint32)
    with pytest.raises(ValueError, match="shapes differ"):
        field.add(a, a[:1], Q)


@pytest.mark.parametrize("q", PRIMES)
@pytest.mark.parametrize("kind", ["small", "extreme", "none"])
def test_weighted_sum(q, kind):
    rng = np.random.default_rng(2)
    rows = random(rng, q, 40, 333)
    weights = {
        "small": [int(w) for w in rng.integers(-5, 100, 40)],
        "extreme": [worst(q)[i % len(worst(q))] for i in range(40)],
        "none": None,
    }[kind]
    expected = (objects(rows) * objects(weights or [1] * 40)[:, None]).sum(axis=0) % q
    one, listed = field.weighted_sum(rows, weights, q), field.weighted_sum(list(rows[:, None]), weights, q)
    assert one.dtype == np.uint32
    assert one.shape == listed.shape == (1, 333)
    assert (objects(one[0]) == expected).all()
    assert (one == listed).all()


def test_weighted_sum_of_all_largest_words_and_weights():
    rows = np.full((600, 3), 2**32 - 1, np.uint32)  # not even canonical
    assert (field.weighted_sum(rows, [Q - 1] * 600, Q) == 600 * (Q - 1) * (2**32 - 1) % Q).all()
    assert (field.weighted_sum(rows, [2**20] * 600, Q) == 600 * 2**20 * (2**32 - 1) % Q).all()
    # After a reduction, these two products alone add up to 2^64 - 1: the residue must be counted too.
    weights = [Q - 1, Q - 1, 7]
    assert (field.weighted_sum(rows[:3], weights, Q) == sum(weights) * (2**32 - 1) % Q).all()


def test_weighted_sum_refuses_wrong_rows_and_weights():
    rows = np.zeros((3, 8), np.uint32)
    with pytest.raises(ValueError, match="at least one row"):
        field.weighted_sum([], None, Q)
    with pytest.raises(ValueError, match="2 weights for 3 rows"):
        field.weighted_sum(rows, [1, 2], Q)
    with pytest.raises(ValueError, match="different lengths"):
        field.weighted_sum([rows[:1], rows[:1, :5]], None, Q)


@pytest.mark.parametrize("q", PRIMES)
@pytest.mark.parametrize("k", [0, 1, 119, 120, 121, 128, 129, 300])
def test_matmul_of_worst_and_random_residues(q, k):
    rng = np.random.default_rng(k)
    W, Z = random(rng, q, 6, k), random(rng, q, k, 7)
    expected = objects(W) @ objects(Z) % q if k else np.zeros((6, 7), object)
    got = field.matmul(W, Z, q)
    assert got.dtype == np.uint32
    assert (objects(got) == expected).all()


@pytest.mark.parametrize("q", PRIMES)
def test_matmul_of_constant_worst_residues(q):
    # Every sum of limbs is as large as it can get, and all of one sign. The constants that fill both limbs
    # (2^31 - 2^15, and its negative) are the ones for which a block must not be a column too long.
    values = {*worst(q), (2**31 - 2**15) % q, (q - 2**31 + 2**15) % q, 2**15 - 1, 2**15 + 1}
    for w in sorted(v for v in values if v < q):
        for z in worst(q):
            for k in (127, 260, 1000):
                W, Z = np.full((2, k), w, np.uint32), np.full((k, 3), z, np.uint32)
                assert (field.matmul(W, Z, q) == w * z * k % q).all(), (w, z, k)


def test_matmul_is_exact_at_the_edge_of_53_bits():
    # Odd limbs and odd z: a float64 sum past 2^53 would lose the last bit, and k is past every block.
    w, z = 2**31 - 2**15 - 2**16 + 2**15 - 1, (Q - 1) // 2
    for k in range(100, 400, 7):
        W, Z = np.full((1, k), w, np.uint32), np.full((k, 1), z, np.uint32)
        W[0, ::5] -= 2
        expected = sum(int(x) for x in W[0]) * z % Q
        assert int(field.matmul(W, Z, Q)[0, 0]) == expected, k


def test_matmul_across_tiles_and_against_galois():
    rng = np.random.default_rng(5)
    W, Z = random(rng, Q, 3, 20), random(rng, Q, 20, 50_000)
    got = field.matmul(W, Z, Q)
    expected = np.zeros((3, 50_000), np.uint64)
    for k in range(20):
        expected = (expected + W[:, k : k + 1].astype(np.uint64) * Z[k] % Q) % Q
    assert (got == expected).all()
    GF = galois.GF(Q, compile="python-calculate")
    assert (objects(GF(W.astype(object)) @ GF(Z[:, :20].astype(object))) == objects(got[:, :20])).all()
    with pytest.raises(ValueError, match="inner sizes"):
        field.matmul(W, Z[:19], Q)


def test_rows_of_a_matrix_are_summed_wherever_they_lie():
    """Of every second row, in columns' order, and reversed: the sums are those of the rows one by one."""
    rng = np.random.default_rng(8)
    whole = rng.integers(0, Q, (14, 40), dtype=np.uint32)
    for rows in (whole, whole[::2], whole[::-1], np.asfortranarray(whole), whole[:, 3:29]):
        weights = list(range(1, len(rows) + 1))
        expected = (rows.astype(object) * np.array(weights, object)[:, None]).sum(axis=0) % Q
        for given_ in (rows, list(rows)):
            assert (field.weighted_sum(given_, weights, Q)[0] == expected.astype(np.uint64)).all()
    with pytest.raises(TypeError, match="safe"):
        field.weighted_sum(whole.astype(np.int64), None, Q)
