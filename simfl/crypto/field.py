"""Vectors and matrices over F_q, q a prime below 2^32, as `uint32`.

Invariant: every result is exact. Arithmetic is done in a wider type (`uint64`, or `float64` as 53-bit
integers) and reduced modulo q before anything could round or wrap. Elements are canonical, 0 <= x < q: a
precondition that is not checked, except where noted.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from simfl.crypto import A32, A64, F64, I64, short_loops
from simfl.crypto.short_loops import SHORT_SUM, loops_for

_TILE_COLUMNS = 512  # of Z at a time: wide enough for BLAS, and temporaries within the L3 cache
_TILE_ELEMENTS = 1 << 18  # of a temporary, where W is small
# Beside a sum of products there is 2^16 hi, hi reduced to 32 bits (2^48).
_EXACT_SUM = 2**53 - 2**49

Q = 2**32 - 5
"""The largest prime below 2^32: the field of LightSecAgg (section 7)."""


def is_prime(q: int) -> bool:
    """Return True if q is prime: Miller-Rabin with bases 2, 7, 61, deterministic below 4,759,123,141
    (Jaeschke 1993). ValueError for q >= 2^32.

    >>> is_prime(Q), is_prime(Q - 2)
    (True, False)
    """
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
    """Return a + b mod q, elementwise. ValueError for unequal shapes.

    >>> add(np.uint32([5, 6]), np.uint32([3, 0]), 7)
    array([1, 6], dtype=uint32)
    """
    return _combine(a, b, q, minus=False)


def sub(a: A32, b: A32, q: int) -> A32:
    """Return a - b mod q, elementwise. ValueError for unequal shapes."""
    return _combine(a, b, q, minus=True)


def _combine(a: A32, b: A32, q: int, minus: bool) -> A32:
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {a.shape} and {b.shape}")
    out = np.empty(a.shape, np.uint32)
    loops_for(out.size).combine(flat(a), flat(b), np.uint32(q), minus, out.reshape(-1))
    return out


def add_to(total: A32, x: A32, q: int) -> None:
    """total += x mod q, in place; contiguous rows [L] of canonical elements."""
    loops_for(total.size).combine(total, x, np.uint32(q), False, total)


def flat(x: A32) -> A32:
    """Return x as one contiguous row, copied if need be. TypeError if x is not safely a uint32."""
    return np.require(x.reshape(-1).astype(np.uint32, casting="safe", copy=False), None, ["C", "A"])


def weighted_sum(rows: Sequence[A32] | A32, weights: Sequence[int] | None, q: int) -> A32:
    """Return sum_i w_i rows_i mod q, [1, L]. Any uint32 content is summed correctly, also q and above.

    rows: n arrays [1, L], or one [n, L]. weights: n integers of any size and sign, or None for all one.
    ValueError if there are no rows, if their lengths differ, or if weights are not one a row.

    >>> weighted_sum(np.uint32([[1, 2], [3, 4]]), [1, -2], 11)
    array([[6, 5]], dtype=uint32)
    """
    n = len(rows)
    if not n:
        raise ValueError("a weighted sum needs at least one row")
    vectors, length = _vectors(rows)
    factors = [1] * n if weights is None else [int(w) % q for w in weights]
    if len(factors) != n:
        raise ValueError(f"{len(factors)} weights for {n} rows")
    loops = loops_for(n * length, short=SHORT_SUM)
    if loops is short_loops:
        return short_loops.weighted_sum(np.asarray(vectors), factors, q)[None]
    held, at = _addresses(vectors)
    out = np.empty((1, length), np.uint32)
    padding = -n % 4  # the loop takes four rows at a time
    addresses = np.concatenate([at, at[:1].repeat(padding)])
    loops.weighted_sum(addresses, np.array(factors + [0] * padding, np.uint32), np.uint64(q), out[0])
    del held  # not before: the loop knows addresses only
    return out


def _vectors(rows: Sequence[A32] | A32) -> tuple[list[A32] | A32, int]:
    """Return rows of uint32, [n, L] or n of [L], and their length."""
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return rows.astype(np.uint32, casting="safe", copy=False), rows.shape[1]
    vectors = [flat(row) for row in rows]
    length = vectors[0].size
    if any(v.size != length for v in vectors):
        raise ValueError(f"rows have different lengths: {sorted({v.size for v in vectors})}")
    return vectors, length


def _addresses(vectors: list[A32] | A32) -> tuple[object, A64]:
    """Return what must be held as long as the addresses are used, and the addresses."""
    if isinstance(vectors, np.ndarray):
        every = np.require(vectors, None, ["C", "A"])
        first, step = np.uint64(every.ctypes.data), np.uint64(every.strides[0])
        return every, first + step * np.arange(len(every), dtype=np.uint64)
    return vectors, np.array([v.__array_interface__["data"][0] for v in vectors], np.uint64)


def matmul(W: A32, Z: A32, q: int) -> A32:
    """Return W Z mod q, [a, m], for W [a, k] and any Z [k, m]. ValueError if the inner sizes differ.

    By float64 BLAS with two signed limbs on the left. With W = lo + 2^16 hi centred, |lo|, |hi| <= 2^15, and
    c = floor(q / 2),

        W Z = lo (Z - c) + 2^16 (hi (Z - c) mod q) + c W 1   (mod q),   |Z - c| <= c.

    The k columns are cut into blocks so that in every row

        (sum of |lo|) c <= 2^53 - 2^49   and   (sum of |hi|) c <= 2^53 - 2^49,

    so any partial sum, in whatever order BLAS takes it, is an integer below 2^53. A block has at least 120
    columns, of a random W about 250.
    """
    if W.shape[1] != Z.shape[0]:
        raise ValueError(f"inner sizes differ: {W.shape} times {Z.shape}")
    a, m = W.shape[0], Z.shape[1]
    out, loops = np.empty((a, m), np.uint32), loops_for(a * m)
    limbs, blocks, offset = prepare(W.tobytes(), W.shape, q)
    tile = max(_TILE_COLUMNS, _TILE_ELEMENTS // max(1, *limbs.shape))
    centre, width = float(q // 2), 0
    for j in range(0, m, tile):
        if width != min(tile, m - j):
            width = min(tile, m - j)
            z, total, product = np.empty((W.shape[1], width)), np.empty((a, width)), np.empty((2 * a, width))
        np.subtract(Z[:, j : j + width], centre, out=z)
        total[:] = offset
        for start, end in blocks:
            np.matmul(limbs[:, start:end], z[start:end], out=product)
            loops.add_limbs(product, float(q), total)
        loops.residues(total, float(q), out[:, j : j + width])
    return out


@lru_cache(maxsize=4)
def prepare(content: bytes, shape: tuple[int, int], q: int) -> tuple[F64, list[tuple[int, int]], F64]:
    """Return W's limbs [2a, k], exact column blocks, and what centring adds [a, 1]: c W 1 mod q."""
    # The content is the cache's key: a matrix that was changed is another matrix.
    w = np.frombuffer(content, np.uint32).reshape(shape).astype(np.int64)
    w -= (w > q // 2) * np.int64(q)
    hi = (w + 2**15) >> 16
    limbs = np.vstack([w - (hi << 16), hi])
    # Exact in int64 for rows shorter than 2^31, and then in uint64.
    sums = (w.sum(axis=1, keepdims=True) % np.int64(q)).astype(np.uint64)
    offset = sums * np.uint64(q // 2) % np.uint64(q)
    return limbs.astype(np.float64), exact_blocks(limbs, q), offset.astype(np.float64)


def exact_blocks(limbs: I64, q: int) -> list[tuple[int, int]]:
    """Return column ranges, as long as |limb| summed over a row times q/2 stays within 2^53 - 2^49."""
    sums = np.abs(limbs).cumsum(axis=1)
    limit = _EXACT_SUM // max(1, q // 2)
    blocks, start, columns = [], 0, limbs.shape[1]
    while start < columns:
        before = sums[:, start - 1 : start] if start else 0
        worst = (sums[:, start:] - before).max(axis=0, initial=0)
        end = start + int(np.searchsorted(worst, limit, side="right"))
        blocks.append((start, end))
        start = end
    return blocks or [(0, 0)]
