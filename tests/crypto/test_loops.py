"""The compiled loops behind field, prg and quantize, against the numpy expressions that they replace."""

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simfl.crypto import field, interpolation_loops, loops, prg, quantize
from simfl.crypto.field import Q
from tests.crypto.oracles import words
from tests.sizes import examples

ROOT = Path(__file__).parents[2]
NTT = 2147352577
FIELDS = [3, 257, 2**31 - 1, NTT, Q]
ANY_Q = [*FIELDS, 2, 2**31, 2**31 + 11, 3 * 2**30]
EDGES = sorted(
    {0, 1, 100, 2 * prg.BLOCK + 77}
    | {size + k for size in (loops._SMALL_GROUP, loops._GROUP, loops._COLUMNS, prg.BLOCK) for k in (-1, 0, 1)}
)


def seed(n):
    return np.frombuffer(sha256(str(n).encode()).digest(), np.uint8).reshape(1, 32)


def vector(rng, q, length):
    """Residues [1, length], half of them extreme."""
    extremes = np.array(sorted({x % q for x in (0, 1, 2, q - 1, q - 2, q // 2, q // 2 + 1)}), np.uint32)
    uniform = rng.integers(0, q, (1, length), dtype=np.uint32)
    return np.where(rng.random((1, length)) < 0.5, uniform, rng.choice(extremes, (1, length)))


def same(got, expected):
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.flags.writeable
    assert got.tobytes() == expected.tobytes()


# What the functions were before, in plain numpy.


def plain_combine(a, b, q, minus):
    wide = a.astype(np.int64) - b if minus else a.astype(np.int64) + b
    return (wide % q).astype(np.uint32)


def plain_sum(rows, weights, q):
    total = np.zeros((1, np.size(rows[0])), np.uint64)
    for row, w in zip(rows, weights or [1] * len(rows), strict=True):
        product = np.reshape(row, (1, -1)) * np.uint64(int(w) % q) % np.uint64(q)
        total = (total + product) % np.uint64(q)
    return total.astype(np.uint32)


def plain_expand(seed, length, q):
    kept = np.uint32((1 << (q - 1).bit_length()) - 1)
    stream = words(seed, 4 * length + 64)[0] & kept
    out, later = stream[:length].copy(), stream[length:]
    rejected = np.flatnonzero(out >= q)
    out[rejected] = later[later < q][: rejected.size]
    return out.reshape(1, -1)


def plain_mask(x, seeds, signs, q):
    total = x.astype(np.int64)
    for k, sign in enumerate(signs):
        total += sign * plain_expand(seeds[k : k + 1], x.shape[1], q).astype(np.int64)
    return (total % q).astype(np.uint32)


def plain_levels(delta, clip, levels, seed):
    x = np.clip(delta.astype(np.float64), -clip, clip) * levels
    floor = np.floor(x)
    floor += words(seed, x.shape[1]) < (x - floor) * 2.0**32
    return floor.astype(np.int64)


def plain_quantise(delta, weight, clip, levels, seed, q, append_weight):
    x = plain_levels(delta, clip, levels, seed) * weight
    if append_weight:
        x = np.append(x, [[weight]], axis=1)
    return (x % q).astype(np.uint32)


def plain_dequantise(total, levels, divisor, q):
    x = quantize.signed(total, q)
    if divisor is None:
        x, divisor = x[:, :-1], int(x[0, -1])
    return x / float(levels * divisor)


@pytest.mark.parametrize("q", FIELDS)
@pytest.mark.parametrize("length", EDGES)
def test_add_and_sub(q, length):
    rng = np.random.default_rng(length)
    a, b = vector(rng, q, length), vector(rng, q, length)
    same(field.add(a, b, q), plain_combine(a, b, q, minus=False))
    same(field.sub(a, b, q), plain_combine(a, b, q, minus=True))


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.sampled_from(FIELDS))
def test_add_and_sub_of_any_residues(data, q):
    pairs = data.draw(st.lists(st.tuples(st.integers(0, q - 1), st.integers(0, q - 1)), min_size=1))
    a, b = np.array(pairs, np.uint32).T
    assert field.add(a, b, q).tolist() == [(x + y) % q for x, y in pairs]
    assert field.sub(a, b, q).tolist() == [(x - y) % q for x, y in pairs]


@pytest.mark.parametrize("q", FIELDS)
@pytest.mark.parametrize("length", EDGES)
def test_weighted_sums_across_blocks(q, length):
    rng = np.random.default_rng(length)
    rows = [vector(rng, q, length) for _ in range(6)]
    for weights in (None, [3, 1, 0, 1, 2**20, -1], [q - 1, q - 2, q - 1, 1, 0, q // 2]):
        same(field.weighted_sum(rows, weights, q), plain_sum(rows, weights, q))
        same(field.weighted_sum(np.vstack(rows), weights, q), plain_sum(rows, weights, q))


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.sampled_from(FIELDS), st.integers(1, 13))
def test_weighted_sums_of_any_words_and_weights(data, q, n):
    row = st.lists(st.integers(0, 2**32 - 1) | st.just(2**32 - 1), min_size=3, max_size=3)
    rows = data.draw(st.lists(row, min_size=n, max_size=n))
    weights = data.draw(st.lists(st.integers(), min_size=n, max_size=n))
    expected = [sum(w * row[j] for w, row in zip(weights, rows, strict=True)) % q for j in range(3)]
    assert field.weighted_sum(np.array(rows, np.uint32), weights, q)[0].tolist() == expected


@pytest.mark.parametrize("last", [-2, -1, 0, 1, 2])
def test_sums_of_weights_around_the_bound_of_one_accumulator(last):
    # The largest words; the weights add up to 2^32 + last, where 2^32 is the most for one uint64.
    for weights in ([2**31, 2**31 - 1, 1 + last], [2**32 - 7, 7 + last], [2**30] * 3 + [2**30 + last]):
        if min(weights) >= 0:
            rows = np.full((len(weights), 5), 2**32 - 1, np.uint32)
            assert (field.weighted_sum(rows, weights, Q) == sum(weights) * (2**32 - 1) % Q).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 200, 203])
def test_sums_of_many_largest_words(n):
    rows = [np.full((1, 9), 2**32 - 1, np.uint32)] * n
    assert (field.weighted_sum(rows, [Q - 1] * n, Q) == n * (Q - 1) * (2**32 - 1) % Q).all()
    assert (field.weighted_sum(rows, None, Q) == n * (2**32 - 1) % Q).all()


def strange_copies(x):
    """x, read-only, every second of a longer row, backwards, and at an odd address."""
    frozen = x.copy()
    frozen.flags.writeable = False
    spaced = np.zeros((x.shape[0], 2 * x.shape[1]), x.dtype)
    spaced[:, ::2] = x
    room = np.zeros(x.nbytes + 1, np.uint8)
    odd = room[1:].view(x.dtype).reshape(x.shape)
    odd[:] = x
    return [frozen, spaced[:, ::2], x[:, ::-1].copy()[:, ::-1], odd, np.asfortranarray(x)]


def test_arrays_of_every_layout():
    x = vector(np.random.default_rng(1), Q, 5000)
    delta = np.random.default_rng(2).normal(size=(1, 5000)).astype(np.float32)
    for y in strange_copies(x):
        same(field.add(y, y, Q), plain_combine(x, x, Q, minus=False))
        same(field.weighted_sum([y, x], [5, 7], Q), plain_sum([x, x], [5, 7], Q))
        same(prg.mask(y, seed(1), [-1], Q), plain_mask(x, seed(1), [-1], Q))
        same(quantize.dequantise(y, 9, 5, Q), plain_dequantise(x, 9, 5, Q))
    for y in strange_copies(delta):
        same(quantize.signed_levels(y, 1.0, 99, seed(1)), plain_levels(delta, 1.0, 99, seed(1)))
        assert quantize.count_clipped(y, 0.5) == np.count_nonzero(np.abs(delta) > 0.5)
    square = vector(np.random.default_rng(3), Q, 49).reshape(7, 7)
    same(field.sub(square.T, square, Q), plain_combine(square.T, square, Q, minus=True))
    same(field.weighted_sum(square.T, None, Q), plain_sum(list(square.T), None, Q))
    same(quantize.dequantise(square.T, 9, 5, Q), np.ascontiguousarray(plain_dequantise(square.T, 9, 5, Q)))


def test_other_types_are_refused_not_cut():
    wide = np.array([[2**32]], np.int64)
    for call in (lambda: field.add(wide, wide, Q), lambda: field.weighted_sum([wide], None, Q)):
        with pytest.raises(TypeError, match="safe"):
            call()


@pytest.mark.parametrize("q", ANY_Q)
@pytest.mark.parametrize("length", EDGES)
def test_expand_and_mask(q, length):
    same(prg.expand(seed(length), length, q), plain_expand(seed(length), length, q))
    x = vector(np.random.default_rng(length), q, length)
    seeds, signs = np.vstack([seed(k) for k in range(3)]), [1, -1, 1]
    same(prg.mask(x, seeds, signs, q), plain_mask(x, seeds, signs, q))


@pytest.mark.parametrize("q", ANY_Q)
@pytest.mark.parametrize("sign", [1, -1])
def test_mask_of_extremes_and_of_non_residues(q, sign):
    for value in (0, q - 1, q // 2, q, 2**32 - 1):
        x = np.full((1, 3000), value, np.uint32)
        same(prg.mask(x, seed(1), [sign], q), plain_mask(x, seed(1), [sign], q))
        same(prg.mask(x, np.empty((0, 32), np.uint8), [], q), (x % np.uint32(q)).astype(np.uint32))


def test_mask_takes_one_row():
    with pytest.raises(ValueError, match="only one row"):
        prg.mask(np.zeros((2, 5), np.uint32), seed(1), [1], Q)


@pytest.mark.ci
def test_threads_have_buffers_of_their_own():
    x = vector(np.random.default_rng(1), Q, 3 * prg.BLOCK + 5)
    delta = np.random.default_rng(2).normal(size=x.shape)

    def work(n):
        q = ANY_Q[n % len(ANY_Q)]
        seeds = np.vstack([seed(n), seed(n + 1)])
        return [
            prg.expand(seed(n), x.shape[1], q),
            prg.mask(x % np.uint32(q), seeds, [1, -1], q),
            quantize.quantise(delta, 1, 1.0, 2**16, seed(n), Q, True),
            quantize.signed_levels(delta, 1.0, 2**16, seed(n)),
        ]

    alone = [work(n) for n in range(24)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(work, range(24)))
    for a, b in zip(alone, together, strict=True):
        for got, expected in zip(b, a, strict=True):
            same(got, expected)


def test_results_are_no_views_of_a_buffer():
    x, delta = np.zeros((1, 500), np.uint32), np.full((1, 500), 0.3)

    def work(n):
        return [
            prg.expand(seed(n), 500, 3 * 2**30),
            prg.mask(x, seed(n), [1], 3 * 2**30),
            prg.mask(x, seed(n)[:0], [], Q),
            quantize.signed_levels(delta, 1.0, 2**16, seed(n)),
            quantize.quantise(delta, 1, 1.0, 2**16, seed(n), Q, False),
            quantize.dequantise(x, 1, 1, Q),
            field.add(x, x, Q),
            field.weighted_sum([x], None, Q),
        ]

    first = work(1)
    before = [result.copy() for result in first]
    work(2)
    for result, copy in zip(first, before, strict=True):
        assert (result == copy).all()
        for own in (prg.SCRATCH.keystream, prg.SCRATCH.places, x, delta):
            assert not np.shares_memory(result, own)


def run(code):
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.ci
def test_loading_a_scenario_imports_nothing_heavy():
    code = "import sys, simfl.cli, simfl.scenario.load, simfl.crypto.quantize, simfl.crypto.shamir\n"
    done = run(code + "print(sorted({'numba', 'torch', 'galois'} & set(sys.modules)))")
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.ci
def test_loops_are_compiled_without_a_cache_folder():
    code = """
from numba.core import caching
getattr(caching, "CacheImpl", getattr(caching, "_CacheImpl", None))._locator_classes = []
from simfl.crypto.compiling import INT, compiled
print(compiled(INT(INT))(lambda x: 2 * x)(21))
"""
    done = run(code)
    assert done.stdout.strip() == "42", done.stderr


@given(points=st.sets(st.one_of(st.integers(1, 300), st.integers(1, 2**31 - 2)), min_size=1, max_size=40))
@example(points={2**31 - 2})
@example(points={1, 2**31 - 2})
@example(points=set(range(2**31 - 151, 2**31 - 1)))
def test_weights_at_zero_are_those_of_integers(points):
    p = 2**31 - 1
    x = np.array(list(points), np.uint64)
    out = np.empty_like(x)
    interpolation_loops.at_zero(x, out)
    for i, value in enumerate(out.tolist()):
        others = [int(other) for j, other in enumerate(x) if j != i]
        below = math.prod(other - int(x[i]) for other in others)
        assert value == math.prod(others) * pow(below, -1, p) % p


@pytest.mark.parametrize("q", [7, 2147352577, 2**32 - 5])
def test_lagrange_polynomials_are_one_at_their_own_point(q: int) -> None:
    x = [1, 2, 4, q - 2, q - 1] if q > 7 else [1, 2, 4, 6]
    out = np.empty((len(x), len(x)), np.uint32)
    interpolation_loops.lagrange(np.array(x, np.uint64), np.uint64(q), out)
    for j in range(len(x)):
        values = [sum(int(c) * at**k for k, c in enumerate(out[:, j])) % q for at in x]
        assert values == [int(i == j) for i in range(len(x))]
    low = np.empty((2, len(x)), np.uint32)
    interpolation_loops.lagrange(np.array(x, np.uint64), np.uint64(q), low)
    assert (low == out[:2]).all()
