"""The numpy loops for short vectors, and the choice between them and the compiled loops for long ones.

Invariant: both give the same bits (`tests/crypto/test_short_loops.py`). The sizes alone decide which is
taken, so a step takes the same way in every run, and `dataplane/work.py` can count the passes of numpy by the
same thresholds.

Most runs of a small model never import numba, which takes half a second with its cache and four seconds more
without. A process that measures time imports every loop before it begins (`dataplane.eager.prepare_process`).
"""

from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from simfl.crypto import A32, A64, F64, I64, Floats

SHORT = 2**12
"""Most elements of a vector that numpy works on. For longer ones it takes tens of microseconds more than a
compiled loop."""
SHORT_SUM = 2**14
"""Most elements, of all rows together, of a weighted sum by numpy. It takes few passes, while a compiled loop
needs the rows' addresses, which take long to find."""

_MERSENNE = 2**31 - 1
# An import statement takes 10 us even for a module that is imported already.
_module = cache(import_module)


def loops_for(elements: int, compiled: str = "loops", short: int = SHORT) -> Any:
    """Return the module whose loops work on a number of elements: this one, or a compiled one.

    No other place decides between them by a size.

    Args:
        elements: Elements that the loop goes over.
        compiled: Module of compiled loops for more elements than `short`.
        short: Most elements for numpy.
    """
    return _module(__name__ if elements <= short else f"simfl.crypto.{compiled}")


def import_compiled() -> None:
    """Import all compiled loops, which compiles them or loads numba's cache."""
    # Keep in step with the modules that use `compiling.compiled`: one that is missing here would be compiled
    # within a timed step.
    for compiled in ("loops", "interpolation_loops", "butterflies"):
        _module(f"simfl.crypto.{compiled}")


def combine(a: A32, b: A32, q: np.uint32, minus: bool, out: A32) -> None:
    """Write out = a + b mod q, or a - b if minus; as `loops.combine`."""
    y = b if minus else q - b
    # Compared before `out` is written, which may be `a`.
    # This needs no 33rd bit, which a + b would: see `loops.combine`.
    wraps = a < y
    np.subtract(a, y, out=out)
    np.add(out, q, out=out, where=wraps)


def weighted_sum(rows: A32, weights: list[int], q: int) -> A32:
    """Return sum_i weights[i] rows[i] mod q, [L], for 0 <= weights[i] < q and any words [n, L]."""
    modulus, factors, wide = np.uint64(q), np.array(weights, np.uint64), rows.astype(np.uint64)
    total: A64
    # At most (2^32)(2^32 - 1) < 2^64; with larger weights the products' halves are summed separately.
    if sum(weights) <= 2**32:
        total = factors @ wide
    else:
        products, half = wide * factors[:, None], np.uint64(32)
        high = (products >> half).sum(axis=0) % modulus
        total = (high << half) + (products & np.uint64(2**32 - 1)).sum(axis=0) % modulus
    return (total % modulus).astype(np.uint32)


def add_limbs(product: F64, q: float, total: F64) -> None:
    """Add low + 2^16 high mod q to total [a, m], for product [2a, m] = low above high."""
    # int64 holds all of it: |low| < 2^53, and 2^16 (high mod q) < 2^48.
    low, high = product.astype(np.int64).reshape(2, *total.shape)
    total += (low + (high % int(q) << 16)) % int(q)


def residues(total: F64, q: float, out: A32) -> None:
    """Write out = total mod q, for integers below 2^53."""
    out[:] = total.astype(np.int64) % int(q)


def mask_and_find(words: A32, first: int, bit_mask: np.uint32, q: np.uint32, places: I64) -> int:
    """Write words &= bit_mask, then places = first + flatnonzero(words >= q); return the number of places."""
    words &= bit_mask
    rejected = np.flatnonzero(words >= q)
    places[: rejected.size] = rejected + first
    return rejected.size


def accumulate(
    total: A32, words: A32, first: int, bit_mask: np.uint32, q: np.uint32, minus: bool, places: I64
) -> int:
    """Add words & bit_mask to total mod q, or subtract them; places and result as for `mask_and_find`."""
    elements = words & bit_mask
    rejected = np.flatnonzero(elements >= q)
    elements[rejected] = 0
    combine(total, elements, q, minus, total)
    places[: rejected.size] = rejected + first
    return rejected.size


def _levels(delta: Floats, words: A32, clip: float, levels: float) -> I64 | None:
    """Return the level of each coordinate; None unless all are finite."""
    if not np.isfinite(delta).all():
        return None
    y = delta.astype(np.float64).clip(-clip, clip) * levels
    floor = np.floor(y)
    # Exact: float64 holds each word, and a power of two changes the exponent alone.
    return (floor + (words < (y - floor) * 2.0**32)).astype(np.int64)


def signed_levels(delta: Floats, words: A32, clip: float, levels: float, out: I64) -> bool:
    """Write the level of each coordinate; return True if all are finite."""
    values = _levels(delta, words, clip, levels)
    if values is not None:
        out[:] = values
    return values is not None


def quantise(
    delta: Floats, words: A32, clip: float, levels: float, weight: int, q: int, small: bool, out: A32
) -> bool:
    """Write out = weight level mod q; `small` is for `loops.quantise`. Return True if all are finite."""
    values = _levels(delta, words, clip, levels)
    if values is not None:
        out[:] = values * weight % q
    return values is not None


def dequantise(total: A32, q: np.uint32, divisor: float, out: F64) -> None:
    """Write out = phi^-1(total) / divisor, LightSecAgg eq. 36."""
    negative = total >= (q - np.uint32(1)) // np.uint32(2)
    np.divide(total.astype(np.float64) - float(q) * negative, divisor, out=out)


def lagrange(x: A64, q: np.uint64, out: A32) -> None:
    """Write the m lowest coefficients of each l_j to column j of out [m, n]; see
    `interpolation_loops.lagrange`."""
    m, n = out.shape
    # The coefficients of prod (X - x_i).
    master = np.zeros(n + 1, np.uint64)
    master[0] = 1
    for i in range(n):
        # At most (q - 1) q, and q - 1 more on the next line: q^2 - 1 < 2^64.
        longer = master[: i + 2] * (q - x[i])
        longer[1:] += master[: i + 1]
        master[: i + 2] = longer % q
    quotient, value = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    # Synthetic division by every X - x_j, and Horner for the quotient's value there.
    for k in range(n - 1, -1, -1):
        quotient = (quotient * x + master[k + 1]) % q
        value = (value * x + quotient) % q
        if k < m:
            out[k] = quotient
    out[:] = out * _inverses(value, int(q)) % q


def interpolate(values: A32, x: A64, start: I64, out: A32) -> int:
    """Write the values at 0 of the polynomials through shares; see `interpolation_loops.interpolate`."""
    last, weights = np.empty(0, np.uint64), np.empty(0, np.uint64)
    for k, (first, end) in enumerate(pairwise(start.tolist())):
        points = x[first:end]
        if not np.array_equal(points, last):
            last, at_zero = points, _at_zero(points)
            if at_zero is None:
                return k
            weights = at_zero
        # Reduced before they are summed: uint64 then holds a sum of 2^33 terms.
        products = values[first:end] * weights[:, None] % np.uint64(_MERSENNE)
        out[k] = products.sum(axis=0) % np.uint64(_MERSENNE)
    return len(start) - 1


def _at_zero(x: A64) -> A64 | None:
    """Return prod_(j != i) x_j / (x_j - x_i) mod p = 2^31 - 1 for each i, 0 < x < p; None unless all x
    differ."""
    p = np.uint64(_MERSENNE)
    # Row j has x_j - x_i, with 1 on the diagonal instead of the factor 0.
    away = (x[:, None] + (p - x)) % p
    np.fill_diagonal(away, 1)
    below, product = x, np.uint64(1)
    for point, factors in zip(x, away, strict=True):
        below, product = below * factors % p, product * point % p
    return product * _inverses(below, _MERSENNE) % p if below.all() else None


def _inverses(x: A64, q: int) -> A64:
    # One inversion each: vectors are short here. The compiled loops need one for all.
    return np.array([pow(value, -1, q) for value in x.tolist()], np.uint64)
