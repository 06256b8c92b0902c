"""Real updates <-> elements of F_q: LightSecAgg eqs. 29-31, 34 and 36.

The law: quantisation is unbiased, and sums in F_q are sums of integers as long as no sum reaches
`overflow_bound(q)` in magnitude. An integer x is phi(x) = x mod q (eq. 31), two's complement modulo q.
`levels` is c_l, the steps per unit: a quantised value v stands for v / c_l.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.crypto.field import A32, flat
from simfl.crypto.prg import A8, BLOCK, BUFFERS, stream_of

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]


def signed_levels(delta: Floats, clip: float, levels: int, seed: A8) -> I64:
    """c Q_c(x), eq. 29, of each coordinate x of delta [1, d] clipped to [-clip, clip], as int64 [1, d].

    c = levels. The result is floor(c x) + 1 with probability c x - floor(c x), otherwise floor(c x): its
    mean is c x. Thresholds are 32-bit words of the seed [1, 32], so the mean is met to within 2^-32.
    Magnitudes are at most ceil(clip levels). ValueError if a coordinate is not finite, or unless
    0 < clip, 1 <= levels and clip levels < 2^52, where float64 has no fractions left.
    """
    _check_scale(clip, levels)
    from simfl.crypto import loops

    out = np.empty(delta.shape, np.int64)
    row, scale = _one_row(delta), (float(clip), float(levels))
    stream, finite = stream_of(seed), True
    for i in range(0, row.size, BLOCK):
        block = out[0, i : i + BLOCK]
        words = BUFFERS.read(stream, block.size)
        finite &= loops.signed_levels(row[i : i + BLOCK], words, *scale, block)
    _check_finite(delta, finite)
    return out


def _check_scale(clip: float, levels: int) -> None:
    if not (clip > 0 and levels >= 1 and clip * levels < 2**52):
        raise ValueError(f"clip={clip} and levels={levels} must be positive, their product below 2^52")


def _one_row(delta: Floats) -> Floats:
    """delta [1, d] as contiguous float32 or float64 [d]."""
    if delta.shape[:-1] != (1,):
        raise ValueError(f"an update is one row [1, d], not {list(delta.shape)}")
    kind = np.float32 if delta.dtype == np.float32 else np.float64
    return np.require(delta[0], kind, ["C", "A"])


def _check_finite(delta: Floats, finite: bool) -> None:
    if not finite:
        bad = int(np.flatnonzero(~np.isfinite(delta))[0])
        raise ValueError(f"coordinate {bad} of the update is {delta.reshape(-1)[bad]}: not finite")


def count_clipped(delta: Floats, clip: float) -> int:
    """How many coordinates lie outside [-clip, clip]."""
    from simfl.crypto import loops

    kind = np.result_type(delta, clip)  # numpy compares float32 with a Python float in float32
    own = delta.dtype in (np.float32, np.float64)
    row = np.require(delta.reshape(-1), None if own else np.float64, ["C", "A"])
    return loops.count_beyond(row, float(np.asarray(clip, kind)))


def quantise(
    delta: Floats, weight: int, clip: float, levels: int, seed: A8, q: int, append_weight: bool
) -> A32:
    """phi(weight c Q_c(delta)), eqs. 30-31, as [1, d]; with append_weight the weight is coordinate d + 1,
    so that the sum of weights comes out with the sum (LightSecAgg, Remark 3).

    A product beyond the bound wraps around, as Fig. 12 studies. ValueError as for signed_levels, or
    unless 0 <= weight < overflow_bound(q) and weight ceil(clip levels) < 2^63.
    """
    if not 0 <= weight < overflow_bound(q):
        raise ValueError(f"weight={weight} must be at least 0 and below (q-1)/2={overflow_bound(q)}")
    if weight * (clip * levels + 1) >= 2**63:
        raise ValueError(f"weight={weight} times clip={clip} times levels={levels} must be below 2^63")
    from simfl.crypto import loops

    _check_scale(clip, levels)
    row = _one_row(delta)
    out = np.empty((1, row.size + append_weight), np.uint32)
    small = weight * (clip * levels + 1) < q
    scale = float(clip), float(levels), int(weight), int(q), small
    stream, finite = stream_of(seed), True
    for i in range(0, row.size, BLOCK):
        part = row[i : i + BLOCK]
        words = BUFFERS.read(stream, part.size)
        finite &= loops.quantise(part, words, *scale, out[0, i : i + part.size])
    _check_finite(delta, finite)
    out[0, row.size :] = weight
    return out


def signed(x: A32, q: int) -> I64:
    """phi^-1, eq. 36: x where x < (q-1)/2, otherwise x - q."""
    return x.astype(np.int64) - (x >= (q - 1) // 2) * np.int64(q)


def dequantise(total: A32, levels: int, divisor: int | None, q: int) -> F64:
    """phi^-1(total) / (levels divisor), eqs. 35-36, as float64.

    total [1, L]. divisor None: the last coordinate is the sum of weights, which is the divisor and is
    removed; the result is [1, L - 1], not a number where it is not positive: the sum is wrong then, which is
    the audit's to say. Otherwise [1, L]; ValueError unless the divisor is positive.
    """
    from simfl.crypto import loops

    if divisor is None:
        total, divisor = total[:, :-1], int(signed(total[:, -1:], q)[0, 0])
        if divisor <= 0:
            return np.full(total.shape, np.nan)
    if divisor <= 0:
        raise ValueError(f"divisor={divisor}, the sum of weights, must be positive")
    out = np.empty(total.shape, np.float64)
    loops.dequantise(flat(total), np.uint32(q), float(levels * divisor), out.reshape(-1))
    return out


def round_weight(s: float, levels: int, seed: A8) -> int:
    """c_g Q_(c_g)(s), eq. 34: a staleness weight s as an integer; levels = c_g, seed [1, 32].
    ValueError as for signed_levels."""
    return int(signed_levels(np.array([[s]]), max(abs(s), 1.0), levels, seed)[0, 0])


def audit_bound(weights: int) -> int:
    """What the sum of so many weights times levels must stay below to be counted in 64-bit integers, and
    each level in float64, whether or not it wraps around in the field."""
    return min(2**63, weights * 2**52)


def overflow_bound(q: int) -> int:
    """(q - 1) / 2, the magnitude that no sum may reach: eq. 36 gives back every integer of magnitude
    strictly below it, while (q - 1)/2 itself comes back as -(q + 1)/2."""
    return (q - 1) // 2
