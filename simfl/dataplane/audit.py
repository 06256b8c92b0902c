"""The plain sum that a protocol's aggregate is held against, bit for bit.

It is computed a second time, from the users' updates themselves and in 64-bit integers without a modulus,
so that a wrong mask, weight, member or a wrap-around cannot cancel out on both sides.
"""

from collections.abc import Sequence

import numpy as np

from simfl.crypto import A8, A32, F64, I64, Floats, quantize


def real_sum(vectors: Sequence[Floats], weights: Sequence[float]) -> F64:
    """Return sum_i weights[i] * vectors[i] in float64, 1 x L, added in the order given."""
    total = np.zeros(vectors[0].shape, np.float64)
    for vector, weight in zip(vectors, weights, strict=True):
        total += np.float64(weight) * vector
    return total


def real(total: Floats, deltas: Sequence[Floats], weights: Sequence[float]) -> I64:
    """Return coordinates that differ, 0, 0: a sum of floats is compared in its own order of summing."""
    return np.array([[np.count_nonzero(real_sum(deltas, weights) != total), 0, 0]], np.int64)


def add_levels(plain: I64 | None, delta: Floats, weight: int, seed: A8, clip: float, levels: int) -> I64:
    """Return plain + weight * Q(delta), in the place of plain if there is one: [1, d + 2].
    delta: an update [1, d]; weight: what it was multiplied by, before masking (Remark 3) and by the
    aggregation (eq. 34); seed: of its stochastic rounding. The two coordinates after the levels count the
    weights, and the coordinates of the updates that were clipped."""
    d = delta.shape[1]
    if plain is None:
        plain = np.zeros((1, d + 2), np.int64)
    level = quantize.signed_levels(delta, clip, levels, seed)
    level *= weight
    plain[:, :d] += level
    plain[0, d:] += (weight, quantize.count_clipped(delta, clip))
    return plain


def in_field(
    total: A32,
    deltas: Sequence[Floats],
    samples: Sequence[int],
    factors: Sequence[int],
    seeds: Sequence[A8],
    clip: float,
    levels: int,
    q: int,
) -> I64:
    """Compare an aggregate with sum_i factors[i] * samples[i] * Q(deltas[i]); at least one delta.
    factors: those of the aggregation, 1 in a synchronous round; the rest as for `add_levels`, `compare`."""
    plain = np.zeros((1, deltas[0].shape[1] + 2), np.int64)
    for delta, weight, factor, seed in zip(deltas, samples, factors, seeds, strict=True):
        add_levels(plain, delta, weight * factor, seed, clip, levels)
    return compare(total, plain, q)


def compare(total: A32, plain: I64, q: int) -> I64:
    """Compare an aggregate with the sum [1, d + 2] that `add_levels` has made.
    total: [1, d], or [1, d + 1] with the sum of weights as its last coordinate. Returns, [1, 3], the
    coordinates that differ, those whose true sum left the field's signed range and so wrapped around, and
    those that were clipped before rounding."""
    true = plain[:, : total.shape[1]]
    expected = (true % q).astype(np.uint32)
    wrapped = np.count_nonzero(quantize.signed(expected, q) != true)
    return np.array([[np.count_nonzero(expected != total), wrapped, plain[0, -1]]], np.int64)
