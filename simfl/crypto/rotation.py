"""A random rotation that anyone can repeat: signs from a public seed, then a Walsh-Hadamard transform.

It flattens an update, so that all its coordinates need the same few bits (Kairouz, Liu and Steinke 2021,
arXiv:2102.06387, section 4). Only additions and one factor, so that each machine computes the same bits.
"""

import numpy as np

from simfl.crypto import A8, F64, Floats
from simfl.crypto.prg import stream_of

PASSES, LEVEL_PASSES = 10, 2
"""Numpy's passes over the row: signs 6 (zeros, keystream, bits, floats, two to make -1 and 1), filling up 2,
turning signs and the factor 1 each; and in each level sums and differences."""


def padded(d: int) -> int:
    """Return the smallest power of two that is at least d: the length of a rotated update."""
    return 1 << (d - 1).bit_length()


def rotate(x: Floats, seed: A8) -> F64:
    """Return H D x / sqrt(n), float64 [1, n], where n = `padded(d)` and x is filled up by zeros.

    Args:
        x: Update [1, d].
        seed: Public seed of the signs in D [1, 32].

    >>> seed = np.zeros((1, 32), np.uint8)
    >>> unrotate(rotate(np.array([[3.0, 0, 4]]), seed), seed, 3).round(12).astype(int).tolist()
    [[3, 0, 4]]
    """
    n = padded(x.shape[1])
    out = np.zeros((1, n))
    out[:, : x.shape[1]] = x
    return _transform(out * _signs(seed, n))


def unrotate(y: F64, seed: A8, d: int) -> F64:
    """Return the update [1, d] whose rotation y is: D H y / sqrt(n), without the filling."""
    return (_transform(y.copy()) * _signs(seed, y.shape[1]))[:, :d]


def _signs(seed: A8, n: int) -> F64:
    """Return n signs, +1 or -1, a bit of the keystream each."""
    octets = np.frombuffer(stream_of(seed).update(bytes((n + 7) // 8)), np.uint8)
    return 1.0 - 2.0 * np.unpackbits(octets, count=n, bitorder="little").astype(np.float64)


def _transform(x: F64) -> F64:
    """Return H x / sqrt(n) of a row [1, n], which is overwritten; its own inverse, as H H = n I."""
    half = x.shape[1] // 2
    sums = np.empty_like(x)
    # Each level combines neighbours, and puts sums first and differences behind them: the lowest bit of a
    # place becomes its highest. After all levels each bit is where it was, so the order is that of H (Pease's
    # constant geometry). Each level goes over whole rows, however near its pairs were.
    for _ in range(half.bit_length()):
        even, odd = x[:, ::2], x[:, 1::2]
        np.add(even, odd, out=sums[:, :half])
        np.subtract(even, odd, out=sums[:, half:])
        x, sums = sums, x
    n = x.shape[1]
    # A square root is rounded correctly, so the factor is the same everywhere.
    x *= 1 / np.sqrt(n)
    return x
