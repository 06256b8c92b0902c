"""Seed -> uniform field elements: AES-128 in counter mode (SecAgg's PRG, LightSecAgg eq. 1).

The law: elements are exactly uniform (for a uniform keystream), and the same on every machine. A seed
is 32 bytes: the AES key, then the first counter block. The keystream is read as little-endian 32-bit
words. A word that is no element of the field is rejected, never taken modulo q, which would favour
small values.
"""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

A8 = NDArray[np.uint8]
A32 = NDArray[np.uint32]

_ZEROS = memoryview(bytes(1 << 16))  # encrypting a short block again and again keeps it in the L1 cache
_SLACK = 15  # update_into asks for room for one more block, less a byte


def expand(seed: A8, length: int, q: int) -> A32:
    """The seed's first `length` elements of F_q, [1, length]; seed [1, 32], 2 <= q < 2^32.

    Words are cut to the bit length of q - 1 (32 bits where q > 2^31), so that at most half are rejected.
    The first `length` words are the elements; those not below q are replaced in index order by the next
    words of the stream that are. ValueError for a seed or a length of another form.
    """
    stream = _stream(seed)
    kept = np.uint32((1 << (q - 1).bit_length()) - 1)
    out = _read(stream, length) & kept if q <= 2**31 else _read(stream, length)
    # The largest word tells at half the cost of a comparison that nothing was rejected, the usual case.
    rejected = np.flatnonzero(out >= q) if out.max(initial=0) >= q else np.empty(0, np.intp)
    while rejected.size:
        words = _read(stream, rejected.size) & kept
        fresh = words[words < q]
        out[rejected[: fresh.size]] = fresh
        rejected = rejected[fresh.size :]
    return out.reshape(1, -1)


def words(seed: A8, length: int) -> A32:
    """The seed's first `length` 32-bit words, [1, length]; seed [1, 32]."""
    return _read(_stream(seed), length).reshape(1, -1)


def mask(x: A32, seeds: A8, signs: Sequence[int], q: int) -> A32:
    """x + sum_k signs_k PRG(seeds_k) mod q (LightSecAgg eq. 1); x [1, L], seeds [k, 32], signs +1 or -1.

    ValueError for another sign, or if there is not one sign a seed. Exact: an int64 sum of fewer than
    2^31 residues, reduced once.
    """
    if len(signs) != len(seeds):
        raise ValueError(f"{len(signs)} signs for {len(seeds)} seeds")
    if any(sign not in (1, -1) for sign in signs):
        raise ValueError(f"signs must be +1 or -1, not {sorted(set(signs) - {1, -1})}")
    total = x.astype(np.int64)
    for k, sign in enumerate(signs):
        accumulate = np.add if sign == 1 else np.subtract
        accumulate(total, expand(seeds[k : k + 1], x.shape[1], q), out=total)
    total %= q
    return total.astype(np.uint32)


def derive(seed: bytes, label: str) -> bytes:
    """A 32-byte sub-seed of a 32-byte seed, named by `label`: BLAKE2b (RFC 7693) keyed with the seed."""
    if len(seed) != 32:
        raise ValueError(f"a seed has 32 bytes, not {len(seed)}")
    return blake2b(label.encode(), digest_size=32, key=seed).digest()


def _stream(seed: A8) -> CipherContext:
    if seed.shape != (1, 32) or seed.dtype != np.uint8:
        raise ValueError(f"a seed is uint8 [1, 32], not {seed.dtype} {list(seed.shape)}")
    raw = seed.tobytes()
    return Cipher(algorithms.AES(raw[:16]), modes.CTR(raw[16:])).encryptor()


def _read(stream: CipherContext, length: int) -> A32:
    """The next `length` words of the stream."""
    if length < 0:
        raise ValueError(f"length={length} must not be negative")
    size = 4 * length
    keystream = np.empty(size + _SLACK, np.uint8)
    view = keystream.data
    for i in range(0, size, len(_ZEROS)):
        step = min(len(_ZEROS), size - i)
        stream.update_into(_ZEROS[:step], view[i : i + step + _SLACK])
    return keystream[:size].view("<u4").astype(np.uint32, copy=False)
