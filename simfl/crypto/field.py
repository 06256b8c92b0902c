"""Vectors and matrices over F_q, q a prime below 2^32, as `uint32`.

The law: every result is exact. Arithmetic is done in a wider type (`uint64`, or `float64` as 53-bit
integers) and reduced modulo q before anything could round or wrap; each docstring states its bound.
Elements are canonical, 0 <= x < q; that is a precondition and is not checked, except where noted.

q = 2^32 - 5, the largest prime below 2^32, is the field of LightSecAgg (section 7).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.crypto import limbs

A32 = NDArray[np.uint32]

Q = 2**32 - 5


def is_prime(q: int) -> bool:
    """Whether q < 2^32 is prime: Miller-Rabin with bases 2, 7, 61, deterministic below 4,759,123,141
    (Jaeschke 1993). ValueError for q >= 2^32."""
    if q >= 2**32:
        raise ValueError(f"q={q} must be below 2^32={2**32}")
    if q < 2 or any(q % p == 0 for p in (2, 7, 61)):
        return q in (2, 7, 61)
    twos = ((q - 1) & (1 - q)).bit_length() - 1
    odd = (q - 1) >> twos
    return all(
        pow(a, odd, q) == 1 or any(pow(a, odd << r, q) == q - 1 for r in range(twos)) for a in (2, 7, 61)
    )


def add(a: A32, b: A32, q: int) -> A32:
    """a + b mod q, elementwise. Equal shapes, otherwise ValueError."""
    return _combine(a, b, q, minus=False)


def sub(a: A32, b: A32, q: int) -> A32:
    """a - b mod q, elementwise. Equal shapes, otherwise ValueError."""
    return _combine(a, b, q, minus=True)


def _combine(a: A32, b: A32, q: int, minus: bool) -> A32:
    from simfl.crypto import loops

    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {a.shape} and {b.shape}")
    out = np.empty(a.shape, np.uint32)
    loops.combine(flat(a), flat(b), np.uint32(q), minus, out.reshape(-1))
    return out


def add_to(total: A32, x: A32, q: int) -> None:
    """total += x mod q, in place; contiguous rows [L] of canonical elements."""
    from simfl.crypto import loops

    loops.combine(total, x, np.uint32(q), False, total)


def flat(x: A32) -> A32:
    """x as one contiguous row, copied only if it is not one already. TypeError if x is no uint32, nor safely
    one."""
    return np.require(x.reshape(-1).astype(np.uint32, casting="safe", copy=False), None, ["C", "A"])


def weighted_sum(rows: Sequence[A32] | A32, weights: Sequence[int] | None, q: int) -> A32:
    """sum_i w_i rows_i mod q, [1, L].

    rows: n arrays [1, L], or one [n, L]. weights: n integers of any size and sign, or None for all one.
    Any uint32 content is summed correctly, also q and above. ValueError if there are no rows, if their
    lengths differ, or if weights are not one a row.

    Exact: a uint64 accumulator for 8,192 columns at a time, reduced once at its end where the sum of the
    w_i mod q is at most 2^32; otherwise one for each half of the products, which no 2^32 rows can fill.
    """
    from simfl.crypto import loops

    n = len(rows)
    if not n:
        raise ValueError("a weighted sum needs at least one row")
    held, at, length = _addresses(rows)
    factors = [1] * n if weights is None else [int(w) % q for w in weights]
    if len(factors) != n:
        raise ValueError(f"{len(factors)} weights for {n} rows")
    out = np.empty((1, length), np.uint32)
    padding = -n % 4  # the loop takes four rows at a time
    addresses = np.concatenate([at, at[:1].repeat(padding)])
    loops.weighted_sum(addresses, np.array(factors + [0] * padding, np.uint32), np.uint64(q), out[0])
    del held  # not before: the loop knows addresses only
    return out


def _addresses(rows: Sequence[A32] | A32) -> tuple[object, NDArray[np.uint64], int]:
    """What must be held as long as the addresses are used; where each row begins; their length."""
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        every = np.require(rows.astype(np.uint32, casting="safe", copy=False), None, ["C", "A"])
        first, step = np.uint64(every.ctypes.data), np.uint64(every.strides[0])
        return every, first + step * np.arange(len(every), dtype=np.uint64), every.shape[1]
    vectors = [flat(row) for row in rows]
    length = vectors[0].size
    if any(v.size != length for v in vectors):
        raise ValueError(f"rows have different lengths: {sorted({v.size for v in vectors})}")
    starts = [v.__array_interface__["data"][0] for v in vectors]
    return vectors, np.array(starts, np.uint64), length


def matmul(W: A32, Z: A32, q: int) -> A32:
    """W Z mod q for W [a, k] and Z [k, m], as [a, m]: exact for any prime q < 2^32. ValueError if the inner
    sizes differ."""
    if W.shape[1] != Z.shape[0]:
        raise ValueError(f"inner sizes differ: {W.shape} times {Z.shape}")
    return limbs.matmul(W, Z, q)


def inverse(A: A32, q: int) -> A32:
    """The inverse of A [k, k] over F_q, by Gauss-Jordan elimination, O(k^3).

    ValueError if A is not square, or singular. Exact: a product of two residues is below 2^64.
    """
    k = A.shape[0]
    if A.shape != (k, k):
        raise ValueError(f"only a square matrix has an inverse, not {A.shape}")
    modulus = np.uint64(q)
    work = np.hstack([A.astype(np.uint64), np.eye(k, dtype=np.uint64)])
    for c in range(k):
        candidates = np.flatnonzero(work[c:, c])
        if not candidates.size:
            raise ValueError(f"the matrix is singular modulo {q}: no pivot in column {c}")
        pivot = c + int(candidates[0])
        work[[c, pivot]] = work[[pivot, c]]
        work[c] = work[c] * np.uint64(pow(int(work[c, c]), -1, q)) % modulus
        factors = (modulus - work[:, c]) % modulus
        factors[c] = 0
        # (q - 1)^2 + (q - 1) < 2^64: one reduction for the product and the sum.
        work = (work + factors[:, None] * work[c]) % modulus
    return work[:, k:].astype(np.uint32)
