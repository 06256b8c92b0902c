"""The product over F_q on 8-bit integer matrix units: signed digits and `torch._int_mm`.

The law: a sum of products of digits stays within int32, and what is put together from four of them within
53 bits. `torch._int_mm` saturates 16-bit sums, silently, on some processors without VNNI: it is tested once
with the largest digits before it is used at all. torch is imported when it is needed.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfl.crypto.limbs import A32, F64, row_sums

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 4000  # columns of W at a time: 4 BLOCK 2^14 < 2^28, times (1 + 2^8 + 2^16 + 2^24) < 2^52
_TILE = 384  # columns of Z at a time: the temporaries stay in the L2 cache
_CENTRE = 0x80808080  # every byte less 128


class Prepared(NamedTuple):
    """What a product needs of W [a, k]: (start, end, digits [4a, 4 (end - start)]) for each block of columns,
    and what centring adds [a, 1]."""

    blocks: "list[tuple[int, int, Tensor]]"
    offset: F64


def matmul(W: A32, Z: A32, q: int) -> A32:
    """W Z mod q for W [a, k] and Z [k, m], as [a, m].

    The bytes of Z less 128 are signed digits z_j. W_ij is the i-th signed digit of 2^(8j) W mod q, so

        W Z = sum_i 2^(8i) sum_j W_ij z_j + 0x80808080 W 1   (mod q),

    one int8 product [4a, 4k] [4k, m]. With k <= 4000 columns a block, the inner sums are at most
    4 k 2^14 < 2^28 and the outer one is below 2^52; further blocks add a residue each.
    """
    import torch

    from simfl.crypto import loops

    (a, k), m = W.shape, Z.shape[1]
    out = np.empty((a, m), np.uint32)
    blocks, offset = prepare(W.tobytes(), W.shape, q)
    width = 0
    for t in range(0, m, _TILE):
        if width != min(_TILE, m - t):
            width = min(_TILE, m - t)
            bytes_, total = np.empty((4, k, width), np.uint8), np.empty((a, width))
        word = Z[:, t : t + width] ^ np.uint32(_CENTRE)
        for digit in bytes_:
            np.copyto(digit, word, casting="unsafe")
            word >>= np.uint32(8)
        total[:] = offset
        for start, end, digits in blocks:
            z = torch.from_numpy(bytes_[:, start:end].reshape(-1, width).view(np.int8))
            loops.add_digits(torch._int_mm(digits, z).numpy(), float(q), total)
        loops.residues(total, float(q), out[:, t : t + width])
    return out


@lru_cache(maxsize=4)
def prepare(content: bytes, shape: tuple[int, int], q: int) -> Prepared:
    """W from its content, which is the key: a matrix that was changed is another matrix."""
    import torch

    W = np.frombuffer(content, np.uint32).reshape(shape)
    blocks = []
    for start in range(0, shape[1], BLOCK):
        w = W[:, start : start + BLOCK].astype(np.uint64)
        multiples = np.hstack([(w << np.uint64(8 * j)) % np.uint64(q) for j in range(4)])
        digits = torch.from_numpy(np.ascontiguousarray(np.vstack(signed_digits(multiples, q))))
        blocks.append((start, min(start + BLOCK, shape[1]), digits))
    return Prepared(blocks, row_sums(W.astype(np.int64), _CENTRE % q, q))


def signed_digits(x: NDArray[np.uint64], q: int) -> list[NDArray[np.int8]]:
    """Four digits in [-128, 127], lowest first, whose value is x or x - q, for 0 <= x < q <= 2^32.

    Four such digits reach from -0x80808080 to 0x7f7f7f7f, and 0x7f7f7f7f + 1 - 2^32 is their least value."""
    shifted = x.astype(np.int64) + _CENTRE
    shifted -= (x > 0x7F7F7F7F) * np.int64(q)
    return [((shifted >> (8 * i) & 255) - 128).astype(np.int8) for i in range(4)]


@lru_cache(maxsize=1)
def available() -> bool:
    """Whether torch is there and its int8 product is exact for the largest digits, against int64.

    Every pairing of all 127 and all -128, at an odd inner size as long as a block's and at a short one: the
    sums pass 16 bits, a float32's 24, and with an odd one nothing hides in trailing zeros."""
    try:
        import torch
    except ImportError:
        return False
    if not hasattr(torch, "_int_mm"):
        return False
    rows = np.array([127, -128, 127, -128, 1, -1, 0, -127] * 4, np.int64)
    columns = np.resize(np.array([127, -128, -128, 127, 127, -1, 1], np.int64), _TILE)
    for k in (2, 257, 4 * BLOCK - 1):
        left = torch.from_numpy(np.repeat(rows[:, None], k, axis=1).astype(np.int8))
        right = torch.from_numpy(np.repeat(columns[None], k, axis=0).astype(np.int8))
        try:
            got = torch._int_mm(left, right).numpy()
        except RuntimeError:
            return False
        if (got != k * np.outer(rows, columns)).any():
            return False
    return True
