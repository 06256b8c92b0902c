"""The plain sum that a protocol's aggregate is held against, bit for bit.

It is computed a second time, from the users' updates themselves and in 64-bit integers without a modulus,
so that a wrong mask, weight, member or a wrap-around cannot cancel out on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.crypto import quantize

Float = NDArray[np.floating[Any]]


def real_sum(vectors: Sequence[Float], weights: Sequence[float]) -> NDArray[np.float64]:
    """sum_i weights[i] * vectors[i] in float64, 1 x L, added in the order given."""
    total = np.zeros(vectors[0].shape, np.float64)
    for vector, weight in zip(vectors, weights, strict=True):
        total += np.float64(weight) * vector
    return total


def real(total: Float, deltas: Sequence[Float], weights: Sequence[float]) -> NDArray[np.int64]:
    """(coordinates that differ, 0, 0): a sum of floats is compared in its own order of summing."""
    return np.array([[np.count_nonzero(real_sum(deltas, weights) != total), 0, 0]], np.int64)


def in_field(
    total: NDArray[np.uint32],
    deltas: Sequence[Float],
    samples: Sequence[int],
    factors: Sequence[int],
    seeds: Sequence[NDArray[np.uint8]],
    clip: float,
    levels: int,
    q: int,
) -> NDArray[np.int64]:
    """Compare an aggregate with sum_i factors[i] * samples[i] * Q(deltas[i]).

    Args:
        total: the aggregate, 1 x d, or 1 x (d + 1) with the sum of weights as its last coordinate.
        deltas: the members' updates, 1 x d each.
        samples: the weight that each member multiplied in before masking (Remark 3).
        factors: the weight that the aggregation applied (eq. 34), 1 in a synchronous round.
        seeds: the seeds of the members' stochastic rounding.

    Returns:
        1 x 3: coordinates that differ, coordinates whose true sum left the field's signed range and
        so wrapped around, and coordinates that were clipped before rounding.
    """
    d = deltas[0].shape[1]
    true = np.zeros((1, total.shape[1]), np.int64)
    clipped = 0
    for delta, weight, factor, seed in zip(deltas, samples, factors, seeds, strict=True):
        true[:, :d] += factor * weight * quantize.signed_levels(delta, clip, levels, seed)
        true[:, d:] += factor * weight
        clipped += quantize.count_clipped(delta, clip)
    expected = true % q
    wrapped = np.count_nonzero(quantize.signed(expected.astype(np.uint32), q) != true)
    return np.array([[np.count_nonzero(expected != total), wrapped, clipped]], np.int64)
