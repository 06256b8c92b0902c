"""Short loops in numpy, against the compiled ones: the same bits, whichever is taken."""

import subprocess
import sys

import numpy as np
import pytest

from simfl.crypto import interpolation_loops, loops, short_loops
from simfl.crypto.short_loops import SHORT, loops_for

FIELDS = [2, 3, 257, 2**31 - 1, 2**31 + 11, 2147352577, 2**32 - 5]
LENGTHS = [0, 1, 2, 100, SHORT]


def elements(rng, q, *shape):
    """Residues, half of them extreme."""
    extremes = np.array(sorted({x % q for x in (0, 1, 2, q - 1, q - 2, q // 2, q // 2 + 1)}), np.uint32)
    uniform = rng.integers(0, q, shape, dtype=np.uint32)
    return np.where(rng.random(shape) < 0.5, uniform, rng.choice(extremes, shape))


def both(name, results, *arguments, modules=(short_loops, loops)):
    """Call a loop of both modules, and compare their results and outputs.

    results: how many of the last arguments are written.
    """
    first, second = ([a.copy() if isinstance(a, np.ndarray) else a for a in arguments] for _ in range(2))
    returned = [getattr(module, name)(*own) for module, own in zip(modules, (first, second), strict=True)]
    assert returned[0] == returned[1]
    for short, compiled in list(zip(first, second, strict=True))[len(first) - results :]:
        if isinstance(short, np.ndarray):
            assert short.dtype == compiled.dtype
            assert short.tobytes() == compiled.tobytes()
    return returned[0], first


@pytest.mark.parametrize("q", FIELDS)
@pytest.mark.parametrize("length", LENGTHS)
def test_sums_of_two(q, length):
    rng = np.random.default_rng(length)
    a, b = elements(rng, q, 2, length)
    for minus in (False, True):
        both("combine", 1, a, b, np.uint32(q), minus, np.empty_like(a))
    total = a.copy()
    short_loops.combine(total, b, np.uint32(q), False, total)  # in place, as `add_to` does
    assert (total == (a.astype(np.uint64) + b) % np.uint64(q)).all()


@pytest.mark.parametrize("q", FIELDS)
@pytest.mark.parametrize("length", LENGTHS)
def test_words_that_are_no_elements(q, length):
    rng = np.random.default_rng(length)
    words = rng.integers(0, 2**32, length, dtype=np.uint32)
    kept = np.uint32((1 << (q - 1).bit_length()) - 1)
    found, (cut, *_) = both("mask_and_find", 5, words, 7, kept, np.uint32(q), np.full(length, -1))
    assert found == (cut >= q).sum()
    total = elements(rng, q, length)
    for minus in (False, True):
        both("accumulate", 7, total, words, 7, kept, np.uint32(q), minus, np.full(length, -1))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_levels(kind, length):
    rng = np.random.default_rng(length)
    delta = rng.choice(np.array([0.0, -0.0, 1e-30, 0.5, -1.0, 1.0, 7.3, -9.0], kind), length)
    delta[: length // 2] = rng.standard_normal(length // 2)
    words = rng.choice(np.array([0, 1, 2**31, 2**32 - 1], np.uint32), length)
    both("signed_levels", 1, delta, words, 1.0, 65536.0, np.empty(length, np.int64))
    for q, weight, small in ((2**32 - 5, 3, True), (2**32 - 5, 2**30, False), (257, 100, False)):
        rest = 1.0, 65536.0, weight, q, small
        both("quantise", 1, delta, words, *rest, np.empty(length, np.uint32))


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_levels_of_no_finite_number(strange):
    delta, words, out = np.array([0.5, strange]), np.zeros(2, np.uint32), np.empty(2, np.int64)
    assert both("signed_levels", 0, delta, words, 1.0, 4.0, out)[0] is False
    assert both("quantise", 0, delta, words, 1.0, 4.0, 3, 257, True, out.astype(np.uint32))[0] is False


@pytest.mark.parametrize("q", [3, 257, 2147352577, 2**32 - 5])
@pytest.mark.parametrize("length", LENGTHS)
def test_means_of_sums(q, length):
    total = elements(np.random.default_rng(length), q, length)
    both("dequantise", 1, total, np.uint32(q), 3 * 65536.0, np.empty(length))


@pytest.mark.parametrize("q", FIELDS)
def test_limbs_of_a_product(q):
    rng = np.random.default_rng(q)
    bound = 2**53 - 2**49
    product = rng.integers(-bound, bound, (14, 9)).astype(np.float64)
    product[0, :2] = bound, -bound
    total = rng.integers(0, q, (7, 9)).astype(np.float64)
    ours, theirs = total.copy(), total.copy()
    results = np.empty((2, 7, 9), np.uint32)
    for _ in range(3):  # blocks of columns
        short_loops.add_limbs(product, float(q), ours)
        loops.add_limbs(product, float(q), theirs)
    short_loops.residues(ours, float(q), results[0])
    loops.residues(theirs, float(q), results[1])
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize("q", [7, 2147352577, 2**32 - 5])
@pytest.mark.parametrize("m", [1, 2, 5])
def test_lagrange_polynomials(q, m):
    x = np.array([1, 2, 4, q - 2, q - 1] if q > 7 else [1, 2, 4, 5, 6], np.uint64)
    out = np.empty((m, 5), np.uint32)
    both("lagrange", 1, x, np.uint64(q), out, modules=(short_loops, interpolation_loops))


def test_secrets_at_zero():
    rng, p = np.random.default_rng(3), 2**31 - 1
    points = [[1], [1, 2], [1, 2], [5, p - 1, 3, 1000, p // 2], [2, 2], [4, 5]]
    x = np.array([one for some in points for one in some], np.uint64)
    start = np.cumsum([0, *map(len, points)])
    values = elements(rng, p, len(x), 9)
    modules = short_loops, interpolation_loops
    k, (*_, out) = both("interpolate", 0, values, x, start, np.zeros((6, 9), np.uint32), modules=modules)
    assert k == 4  # whose points are the same
    compiled = np.zeros_like(out)
    interpolation_loops.interpolate(values, x, start, compiled)
    assert (out == compiled).all()
    both("interpolate", 1, values[:9], x[:9], start[:5], out[:4], modules=modules)


def test_the_number_of_elements_decides():
    assert loops_for(SHORT) is short_loops
    assert loops_for(SHORT + 1) is loops
    assert loops_for(SHORT + 1, "interpolation_loops") is interpolation_loops


@pytest.mark.ci
def test_a_run_of_a_small_model_imports_no_compiler():
    code = """
import sys, simfl
digits = {"rounds": 1, "clock": "modelled", "learning.dataset": "digits"}
simfl.run("scenarios/tutorial.yaml", digits | {"privacy.T": 2})
simfl.run("scenarios/async_buffer.yaml", digits)
print(sorted({"numba", "scipy.special", "torch"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
