"""Seed -> uniform field elements: AES-128 in counter mode (SecAgg's PRG, LightSecAgg eq. 1).

The law: elements are exactly uniform (for a uniform keystream), and the same on every machine. A seed
is 32 bytes, the first 28 of which are used: the AES key, and the 12 bytes that each counter block begins
with, counted from 2 in the other four (as AES-GCM numbers its blocks, NIST SP 800-38D). The keystream is read
as little-endian 32-bit words. A word that is no element of the field is rejected, never taken modulo q, which
would favour small values.
"""

import sys
import threading
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from simfl.crypto.field import A32, flat

A8 = NDArray[np.uint8]

BLOCK = 1 << 15  # words that are encrypted and worked on at once: they stay in the L2 cache
_ZEROS = memoryview(bytes(4 * BLOCK))
_SLACK = 15  # update_into asks for room for one more block, less a byte
_FIRST = (2).to_bytes(4, "big")


class Scratch(threading.local):
    """A thread's own room for a block of keystream; whatever a caller keeps of it, it copies."""

    def __init__(self) -> None:
        self.keystream = np.empty(4 * BLOCK + _SLACK, np.uint8)
        self.places = np.empty(BLOCK, np.int64)

    def read(self, stream: CipherContext, length: int) -> A32:
        """The next `length` words of the stream, at most BLOCK; valid until the thread's next call."""
        size = 4 * length
        stream.update_into(_ZEROS[:size], self.keystream.data)
        return self.keystream[:size].view("<u4").astype(np.uint32, copy=False)


BUFFERS = Scratch()


def expand(seed: A8, length: int, q: int) -> A32:
    """The seed's first `length` elements of F_q, [1, length]; seed [1, 32], 2 <= q < 2^32.

    Words are cut to the bit length of q - 1 (32 bits where q > 2^31), so that at most half are rejected.
    The first `length` words are the elements; those not below q are replaced in index order by the next
    words of the stream that are. ValueError for a seed or a length of another form.
    """
    from simfl.crypto import loops

    stream, kept, places = stream_of(seed), _kept(q), BUFFERS.places
    keystream = _room(length)
    view, out, rejected = keystream.data, keystream[: 4 * length].view(np.uint32), []
    for i in range(0, length, BLOCK):
        block = _encrypt(stream, view, out, i)
        found = loops.cut(block, i, kept, np.uint32(q), places)  # while the block is in the cache
        if found:
            rejected.append(places[:found].copy())
    if rejected:
        missing = np.concatenate(rejected)
        out[missing] = _replacements(stream, missing.size, kept, q)
    return out.reshape(1, -1)


def words(seed: A8, length: int) -> A32:
    """The seed's first `length` 32-bit words, [1, length]; seed [1, 32]."""
    return _read(stream_of(seed), length).reshape(1, -1)


def mask(x: A32, seeds: A8, signs: Sequence[int], q: int) -> A32:
    """x + sum_k signs_k PRG(seeds_k) mod q (LightSecAgg eq. 1); x [1, L], seeds [k, 32], signs +1 or -1.

    ValueError for another sign, or if there is not one sign a seed, or unless x is one row. Exact: one seed
    is added or subtracted at a time, and the sum reduced. All streams are read side by side, a block of each,
    so that the block of the sum stays in the cache; replacements of rejected words follow at the end.
    """
    from simfl.crypto import loops

    if len(signs) != len(seeds):
        raise ValueError(f"{len(signs)} signs for {len(seeds)} seeds")
    if any(sign not in (1, -1) for sign in signs):
        raise ValueError(f"signs must be +1 or -1, not {sorted(set(signs) - {1, -1})}")
    if x.shape[:-1] != (1,):
        raise ValueError(f"only one row [1, L] can be masked, not {list(x.shape)}")
    row, out, kept, places = flat(x), np.empty(x.shape, np.uint32), _kept(q), BUFFERS.places
    streams = [stream_of(seeds[k : k + 1]) for k in range(len(signs))]
    rejected: list[list[NDArray[np.int64]]] = [[] for _ in signs]
    for i in range(0, row.size, BLOCK):
        block = out[0, i : i + BLOCK]
        loops.canonical(row[i : i + BLOCK], np.uint32(q), block)
        for stream, sign, lists in zip(streams, signs, rejected, strict=True):
            keystream = BUFFERS.read(stream, block.size)
            found = loops.accumulate(block, keystream, i, kept, np.uint32(q), sign == -1, places)
            if found:
                lists.append(places[:found].copy())
    for stream, sign, lists in zip(streams, signs, rejected, strict=True):
        if lists:
            missing = np.concatenate(lists)
            elements = sign * _replacements(stream, missing.size, kept, q).astype(np.int64)
            out[0, missing] = (out[0, missing] + elements) % q
    return out


def derive(seed: bytes, label: str) -> bytes:
    """A 32-byte sub-seed of a 32-byte seed, named by `label`: BLAKE2b (RFC 7693) keyed with the seed."""
    if len(seed) != 32:
        raise ValueError(f"a seed has 32 bytes, not {len(seed)}")
    return blake2b(label.encode(), digest_size=32, key=seed).digest()


def stream_of(seed: A8) -> CipherContext:
    """The seed's keystream from its beginning; seed [1, 32], otherwise ValueError."""
    if seed.shape != (1, 32) or seed.dtype != np.uint8:
        raise ValueError(f"a seed is uint8 [1, 32], not {seed.dtype} {list(seed.shape)}")
    raw = seed.tobytes()
    return Cipher(algorithms.AES(raw[:16]), modes.CTR(raw[16:28] + _FIRST)).encryptor()


def _kept(q: int) -> np.uint32:
    """The bits of a word that are looked at: as many as q - 1 has."""
    return np.uint32((1 << (q - 1).bit_length()) - 1)


def _replacements(stream: CipherContext, count: int, kept: np.uint32, q: int) -> A32:
    """The next `count` words of the stream that are elements."""
    found: list[A32] = []
    while count:
        cut = _read(stream, count) & kept
        found.append(cut[cut < q])
        count -= found[-1].size
    return np.concatenate(found)


def _read(stream: CipherContext, length: int) -> A32:
    """The next `length` words of the stream."""
    keystream = _room(length)
    out = keystream[: 4 * length].view(np.uint32)
    for i in range(0, length, BLOCK):
        _encrypt(stream, keystream.data, out, i)
    return out


def _room(length: int) -> A8:
    if length < 0:
        raise ValueError(f"length={length} must not be negative")
    return np.empty(4 * length + _SLACK, np.uint8)


def _encrypt(stream: CipherContext, view: memoryview, out: A32, i: int) -> A32:
    """Fill the block of `out` at word i, whose bytes `view` shows; that block."""
    block = out[i : i + BLOCK]
    stream.update_into(_ZEROS[: block.nbytes], view[4 * i : 4 * i + block.nbytes + _SLACK])
    if sys.byteorder == "big":
        block.byteswap(inplace=True)
    return block
