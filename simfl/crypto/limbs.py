"""The product over F_q on float64 BLAS: a matrix product with two signed limbs on the left.

Invariant: every float64 that is meant as an integer stays below 2^53 in magnitude, so nothing rounds. That
is seen to when W is prepared; Z may be anything.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

A32 = NDArray[np.uint32]
F64 = NDArray[np.float64]

_TILE_COLUMNS = 512  # of Z at a time: wide enough for BLAS, and temporaries within the L3 cache
_TILE_ELEMENTS = 1 << 18  # of a temporary, where W is small
# Beside a sum of products there is 2^16 hi, hi reduced to 32 bits (2^48).
_EXACT_SUM = 2**53 - 2**49


def matmul(W: A32, Z: A32, q: int) -> A32:
    """W Z mod q for W [a, k] and Z [k, m], as [a, m].

    With W = lo + 2^16 hi centred, |lo|, |hi| <= 2^15, and c = floor(q / 2),

        W Z = lo (Z - c) + 2^16 (hi (Z - c) mod q) + c W 1   (mod q),   |Z - c| <= c.

    The k columns are cut into blocks so that in every row

        (sum of |lo|) c <= 2^53 - 2^49   and   (sum of |hi|) c <= 2^53 - 2^49,

    so any partial sum, in whatever order BLAS takes it, is an integer below 2^53. A block has at least 120
    columns, of a random W about 250.
    """
    from simfl.crypto import loops

    a, m = W.shape[0], Z.shape[1]
    out = np.empty((a, m), np.uint32)
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
    W = np.frombuffer(content, np.uint32).reshape(shape)
    w = W.astype(np.int64)
    w -= (w > q // 2) * np.int64(q)
    hi = (w + 2**15) >> 16
    limbs = np.vstack([w - (hi << 16), hi])
    # Exact in int64 for rows shorter than 2^31, and then in uint64.
    sums = (w.sum(axis=1, keepdims=True) % np.int64(q)).astype(np.uint64)
    offset = sums * np.uint64(q // 2) % np.uint64(q)
    return limbs.astype(np.float64), exact_blocks(limbs, q), offset.astype(np.float64)


def exact_blocks(limbs: NDArray[np.int64], q: int) -> list[tuple[int, int]]:
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
