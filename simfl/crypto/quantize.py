"""Real updates <-> elements of F_q: LightSecAgg eqs. 29-31, 34 and 36.

Invariant: quantisation is unbiased (`test_rounding_is_unbiased`), and sums in F_q are sums of integers if no
sum reaches `overflow_bound(q)` in magnitude. An integer x becomes phi(x) = x mod q (eq. 31), two's complement
modulo q. `levels` is c_l, the levels per unit: a quantised value v stands for v / c_l.

Keep in step: `quantise` and `signed_levels` round alike for one seed, since the audit repeats the rounding of
an upload by `signed_levels` and compares bit for bit (`dataplane/audit.py`).
"""

from typing import Any

import numpy as np

from simfl.crypto import A8, A32, F64, I64, Floats
from simfl.crypto.field import flat
from simfl.crypto.prg import BLOCK, SCRATCH, stream_of
from simfl.crypto.short_loops import loops_for


def signed_levels(delta: Floats, clip: float, levels: int, seed: A8) -> I64:
    """Return c Q_c(x), eq. 29, of each coordinate x clipped to [-clip, clip], int64 [1, d]; c = levels.

    The result is floor(c x) + 1 with probability c x - floor(c x), otherwise floor(c x): its mean is c x.
    Thresholds are 32-bit words, so the mean is right to within 2^-32. Magnitudes are at most ceil(clip
    levels).

    Args:
        delta: Update [1, d].
        clip: Bound of a coordinate, above 0.
        levels: At least 1; clip levels must be below 2^52, from where on float64 has no fractions.
        seed: Seed of the thresholds [1, 32].

    Raises:
        ValueError: A coordinate is not finite, or clip or levels are out of bounds.
    """
    out = np.empty(delta.shape, np.int64)
    _round(loops_for(out.size).signed_levels, delta, clip, levels, seed, out)
    return out


def quantise(
    delta: Floats, weight: int, clip: float, levels: int, seed: A8, q: int, append_weight: bool
) -> A32:
    """Return phi(weight c Q_c(delta)), eqs. 30-31, [1, d] or [1, d + 1].

    A product beyond the bound wraps around, as in the paper's Fig. 12.

    Args:
        delta: Update [1, d].
        weight: Integer, 0 <= weight < overflow_bound(q), with weight ceil(clip levels) < 2^63.
        clip: As for `signed_levels`.
        levels: As for `signed_levels`.
        seed: As for `signed_levels`.
        q: Modulus.
        append_weight: The weight is coordinate d + 1, so that a sum holds the sum of weights (Remark 3).

    Raises:
        ValueError: As for `signed_levels`, or the weight is out of bounds.
    """
    # The weight is a coordinate of the sum itself (Remark 3), so the field's signed range bounds it too.
    if not 0 <= weight < overflow_bound(q):
        raise ValueError(f"weight={weight} must be at least 0 and below (q-1)/2={overflow_bound(q)}")
    # A level is at most ceil(clip levels) < clip levels + 1, and the loop multiplies in int64.
    if weight * (clip * levels + 1) >= 2**63:
        raise ValueError(f"weight={weight} times clip={clip} times levels={levels} must be below 2^63")
    out = np.empty((1, delta.shape[-1] + append_weight), np.uint32)
    # Every product is then below q in magnitude, and the loop needs no division (test_rounding_loops.py:
    # test_products_around_the_field_s_size).
    small = weight * (clip * levels + 1) < q
    _round(loops_for(out.size).quantise, delta, clip, levels, seed, out, int(weight), int(q), small)
    # An empty slice unless the weight is appended.
    out[0, delta.shape[-1] :] = weight
    return out


def _round(loop: Any, delta: Floats, clip: float, levels: int, seed: A8, out: I64 | A32, *args: int) -> None:
    """Fill `out` block by block, each with its thresholds; `args` are the loop's other arguments."""
    if not (clip > 0 and levels >= 1 and clip * levels < 2**52):
        raise ValueError(f"clip={clip} and levels={levels} must be positive, their product below 2^52")
    if delta.shape[:-1] != (1,):
        raise ValueError(f"an update is one row [1, d], not {list(delta.shape)}")
    # The loops exist for float32 and float64. All other types become float64, which holds float16 exactly.
    row = np.require(delta[0], np.float32 if delta.dtype == np.float32 else np.float64, ["C", "A"])
    stream, finite = stream_of(seed), True
    for i in range(0, row.size, BLOCK):
        part = row[i : i + BLOCK]
        # Word i of the stream is the threshold of coordinate i, whatever the block's size.
        thresholds = SCRATCH.read(stream, part.size)
        finite &= loop(part, thresholds, float(clip), float(levels), *args, out[0, i : i + part.size])
    if not finite:
        # The loops only count, so the first such coordinate is looked for here, in the rare case.
        bad = int(np.flatnonzero(~np.isfinite(row))[0])
        raise ValueError(f"coordinate {bad} of the update is {row[bad]}: not finite")


def count_clipped(delta: Floats, clip: float) -> int:
    """Return the number of coordinates outside [-clip, clip]."""
    # In the update's own precision: numpy converts the bound to float32 for a float32 update
    # (test_rounding_loops.py: test_clipping_is_counted_in_the_update_s_own_precision).
    return int(np.count_nonzero(np.abs(delta) > clip))


def signed(x: A32, q: int) -> I64:
    """Return phi^-1(x), eq. 36, int64: x for x < (q - 1) / 2, otherwise x - q.

    >>> signed(np.uint32([2, 3, 6]), 7)
    array([ 2, -4, -1])
    """
    return x.astype(np.int64) - (x >= (q - 1) // 2) * np.int64(q)


def dequantise(total: A32, levels: int, divisor: int | None, q: int) -> F64:
    """Return phi^-1(total) / (levels divisor), eqs. 35-36, float64 [1, L].

    Args:
        total: Aggregate [1, L].
        levels: c_l.
        divisor: Sum of weights. None if it is the last coordinate, which is then removed. The result is zero
            if that one is not positive.
        q: Modulus.

    Raises:
        ValueError: A given divisor is not positive.
    """
    if divisor is None:
        total, divisor = total[:, :-1], int(signed(total[:, -1:], q)[0, 0])
        # Such an aggregate is wrong, as the audit reports. Zero leaves the global model unchanged, so that
        # later rounds of a live run can continue (test_quantize.py:
        # test_a_divisor_that_is_not_positive_leaves_no_update).
        if divisor <= 0:
            return np.zeros(total.shape)
    if divisor <= 0:
        raise ValueError(f"divisor={divisor}, the sum of weights, must be positive")
    out = np.empty(total.shape, np.float64)
    # One division by an exact product of integers, and not two divisions that both round.
    loops_for(out.size).dequantise(flat(total), np.uint32(q), float(levels * divisor), out.reshape(-1))
    return out


def round_weight(s: float, levels: int, seed: A8) -> int:
    """Return c_g Q_(c_g)(s), eq. 34: a staleness weight s as an integer, with levels = c_g."""
    # A bound that clips nothing: a weight is rounded, and never cut.
    return int(signed_levels(np.array([[s]]), max(abs(s), 1.0), levels, seed)[0, 0])


def audit_bound(weights: int) -> int:
    """Return the bound of sums that the audit can count: 64-bit integers, and levels that float64 holds
    exactly."""
    return min(2**63, weights * 2**52)


def overflow_bound(q: int) -> int:
    """Return (q - 1) / 2, the magnitude that no sum may reach: eq. 36 maps it to -(q + 1) / 2."""
    return (q - 1) // 2
