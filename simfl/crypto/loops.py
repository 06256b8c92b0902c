"""The vector loops of field.py, prg.py and quantize.py, compiled: one pass each, no temporaries.

Invariant: a loop gives, bit for bit, the result of the numpy expression in its docstring
(`tests/crypto/test_loops.py`, `tests/crypto/test_rounding_loops.py`). Integers wrap as uint32 and uint64 do.
Floats are float64 in the written order (no fused multiply-add, no fast-math). Callers check all arguments: a
loop trusts them.
"""

from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from simfl.crypto import A32, A64, F64, I64, Floats
from simfl.crypto.compiling import BOOL, INT, REAL, REALS, WIDE, WORD, compiled, read, written

_COLUMNS = 8192
"""Columns of a block of `weighted_sum`: two uint64 accumulators of 64 kB stay in the L2 cache."""
_GROUP, _SMALL_GROUP = 2048, 128
"""Words that are tested together for one that is no element, by their maximum, which needs no branch for each
word; and in a group that has one, again."""


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(typing: Any, address: Any) -> Any:
    # numba has no pointer from an address: this emits LLVM's `inttoptr`.
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(WORD)(WIDE), code


@compiled(types.void(read(WORD), read(WORD), WORD, BOOL, written(WORD)))
def combine(a: A32, b: A32, q: np.uint32, minus: bool, out: A32) -> None:
    """Write out = a - y + q (a < y), with y = b if minus, else q - b."""
    # The sum a + b needs a 33rd bit, a - (q - b) does not.
    for j in range(out.size):
        # For b = 0 this is q itself. Every a is below it, so q is added again, and the result is a.
        y = b[j] if minus else np.uint32(q - b[j])
        difference = np.uint32(a[j] - y)
        out[j] = np.uint32(difference + q) if a[j] < y else difference


@compiled(types.void(read(WIDE), read(WORD), WIDE, written(WORD)))
def weighted_sum(addresses: A64, weights: A32, q: np.uint64, out: A32) -> None:
    """Write out = sum_k weights[k] v_k mod q, with v_k the out.size uint32 at addresses[k].

    The number of rows is a multiple of 4.
    """
    heaviest = np.uint64(0)
    for k in range(weights.size):
        heaviest += np.uint64(weights[k])
    # The sum is then at most (2^32)(2^32 - 1) < 2^64:
    # `test_sums_of_weights_around_the_bound_of_one_accumulator`.
    narrow = heaviest <= np.uint64(2**32)
    low = np.empty(_COLUMNS, np.uint64)
    high = np.empty(_COLUMNS, np.uint64)
    half, ones = np.uint64(32), np.uint64(2**32 - 1)
    for start in range(0, out.size, _COLUMNS):
        end = min(start + _COLUMNS, out.size)
        low[:] = 0
        high[:] = 0
        # A core that reads four rows at a time reads twice as fast.
        for k in range(0, addresses.size, 4):
            a = carray(_pointer(addresses[k]), (out.size,))[start:end]
            b = carray(_pointer(addresses[k + 1]), (out.size,))[start:end]
            c = carray(_pointer(addresses[k + 2]), (out.size,))[start:end]
            d = carray(_pointer(addresses[k + 3]), (out.size,))[start:end]
            s, t = np.uint64(weights[k]), np.uint64(weights[k + 1])
            u, v = np.uint64(weights[k + 2]), np.uint64(weights[k + 3])
            if narrow:
                for j in range(end - start):
                    low[j] += s * a[j] + t * b[j] + u * c[j] + v * d[j]
            else:
                for j in range(end - start):
                    # The halves of the products are summed apart, each sum below 2^32 len(weights).
                    w, x, y, z = s * a[j], t * b[j], u * c[j], v * d[j]
                    low[j] += (w & ones) + (x & ones) + (y & ones) + (z & ones)
                    high[j] += (w >> half) + (x >> half) + (y >> half) + (z >> half)
        for j in range(end - start):
            total = low[j] % q
            if not narrow:
                # At most (q - 1) 2^32 + q - 1 < 2^64 before the last reduction.
                total = (((high[j] % q) << half) + total) % q
            out[start + j] = np.uint32(total)


@compiled(REAL(REAL, REAL, REAL))
def _reduced(x: float, q: float, inverse: float) -> float:
    """Return x mod q for an integer |x| < 2^53 - q: exact, and of magnitude at most q/2 + |x| 2^-51."""
    # The quotient may be rounded to the wrong neighbour, but only next to a tie; any integer times q is
    # subtracted without rounding.
    y: float = x - np.rint(x * inverse) * q
    return y


@compiled(types.void(written(REAL, 2), REAL, written(REAL, 2)))
def add_limbs(product: F64, q: float, total: F64) -> None:
    """Add low + 2^16 high mod q to total [a, m], for product [2a, m] = low above high, of integers below
    2^53."""
    a, inverse = len(total), 1.0 / q
    for i in range(a):
        for j in range(total.shape[1]):
            # Reduced first: times 2^16 it is below 2^48, and with the low product below 2^53
            # (field._EXACT_SUM).
            high = _reduced(product[a + i, j], q, inverse)
            total[i, j] += _reduced(high * 2.0**16 + product[i, j], q, inverse)


@compiled(types.void(written(REAL, 2), REAL, types.Array(WORD, 2, "A")))
def residues(total: F64, q: float, out: A32) -> None:
    """Write out = total mod q, for integers |total| < 2^53 - 2q."""
    # The quotient is off by less than 2^-51 |x| / q, which matters only to a residue next to 0 or q: one that
    # falls outside of 0 .. q - 1 is corrected by q (`test_residues_next_to_zero_at_the_edge_of_53_bits`).
    inverse = 1.0 / q
    for i in range(total.shape[0]):
        for j in range(total.shape[1]):
            x = total[i, j] - np.floor(total[i, j] * inverse) * q
            x += q if x < 0.0 else 0.0
            out[i, j] = np.uint32(x - q if x >= q else x)


@compiled(INT(read(WORD), INT, WORD, WORD, written(INT), INT))
def _rejected(words: A32, first: int, bit_mask: np.uint32, q: np.uint32, places: I64, count: int) -> int:
    """Write places[count:] = first + flatnonzero(words & bit_mask >= q); return the number of places then."""
    for start in range(0, words.size, _SMALL_GROUP):
        # The maximum is found again in a small part, so that the branch is taken for few words.
        group = words[start : start + _SMALL_GROUP]
        largest = np.uint32(0)
        for j in range(group.size):
            word = group[j] & bit_mask
            largest = word if word > largest else largest
        if largest >= q:
            for j in range(group.size):
                if group[j] & bit_mask >= q:
                    places[count] = first + start + j
                    count += 1
    return count


@compiled(INT(written(WORD), INT, WORD, WORD, written(INT)))
def mask_and_find(words: A32, first: int, bit_mask: np.uint32, q: np.uint32, places: I64) -> int:
    """Write words &= bit_mask, then places = first + flatnonzero(words >= q); return the number of places."""
    count = 0
    for start in range(0, words.size, _GROUP):
        group = words[start : start + _GROUP]
        largest = np.uint32(0)
        # A full mask changes no word, so none is written back.
        if bit_mask == np.uint32(2**32 - 1):
            for j in range(group.size):
                largest = group[j] if group[j] > largest else largest
        else:
            for j in range(group.size):
                word = group[j] & bit_mask
                group[j] = word
                largest = word if word > largest else largest
        if largest >= q:
            count = _rejected(group, first + start, bit_mask, q, places, count)
    return count


@compiled(INT(written(WORD), read(WORD), INT, WORD, WORD, BOOL, written(INT)))
def accumulate(
    total: A32, words: A32, first: int, bit_mask: np.uint32, q: np.uint32, minus: bool, places: I64
) -> int:
    """Add words & bit_mask to total mod q, or subtract them if minus; words of q or above count as 0.

    Places and the result are as for `mask_and_find`.
    """
    count = 0
    for start in range(0, total.size, _GROUP):
        sums, group = total[start : start + _GROUP], words[start : start + _GROUP]
        largest = np.uint32(0)
        for j in range(sums.size):
            word = group[j] & bit_mask
            largest = word if word > largest else largest
            # A rejected word adds nothing here. The caller adds its replacement at the end (prg.mask).
            element = word if word < q else np.uint32(0)
            y = element if minus else np.uint32(q - element)
            difference = np.uint32(sums[j] - y)
            sums[j] = np.uint32(difference + q) if sums[j] < y else difference
        if largest >= q:
            count = _rejected(group, first + start, bit_mask, q, places, count)
    return count


@compiled(*(REAL(real, WORD, REAL, REAL) for real in (types.float32, types.float64)))
def _level(x: float, threshold: np.uint32, clip: float, levels: float) -> float:
    """Return floor(y) + (threshold < (y - floor(y)) 2^32), with y = x clipped to [-clip, clip], times
    levels."""
    # In float64 for both types of update, and in this order: short_loops._levels gives the same bits.
    y = min(max(np.float64(x), -clip), clip) * levels
    floor: float = np.floor(y)
    # Strictly below, so an integer is never rounded up: its fraction is 0 (test_quantize.py:
    # test_integers_are_never_rounded).
    return floor + 1.0 if np.float64(threshold) < (y - floor) * 2.0**32 else floor


@compiled(*(BOOL(real, read(WORD), REAL, REAL, written(INT)) for real in REALS))
def signed_levels(delta: Floats, words: A32, clip: float, levels: float, out: I64) -> bool:
    """Write the level of each coordinate; return True if all are finite, otherwise out is garbage."""
    # Counted, and not returned at once, so that the loop has no branch. The comparison is false for NaN too.
    infinite = 0
    for j in range(out.size):
        infinite += not abs(delta[j]) < np.inf
        out[j] = np.int64(_level(delta[j], words[j], clip, levels))
    return infinite == 0


@compiled(*(BOOL(real, read(WORD), REAL, REAL, INT, INT, BOOL, written(WORD)) for real in REALS))
def quantise(
    delta: Floats, words: A32, clip: float, levels: float, weight: int, q: int, small: bool, out: A32
) -> bool:
    """Write out = weight level mod q; small: every |weight level| < q. The result is as for
    `signed_levels`."""
    infinite = 0
    if small:
        # Such products are exact in float64, and one addition of q brings a negative one into the field.
        for j in range(out.size):
            infinite += not abs(delta[j]) < np.inf
            product = _level(delta[j], words[j], clip, levels) * np.float64(weight)
            out[j] = np.uint32(product + np.float64(q) if product < 0 else product)
    else:
        for j in range(out.size):
            infinite += not abs(delta[j]) < np.inf
            level = np.int64(_level(delta[j], words[j], clip, levels))
            # The remainder has the sign of q, as in Python, so a negative product needs no further step.
            out[j] = np.uint32(level * weight % q)
    return infinite == 0


@compiled(types.void(read(WORD), WORD, REAL, written(REAL)))
def dequantise(total: A32, q: np.uint32, divisor: float, out: F64) -> None:
    """Write out = phi^-1(total) / divisor, LightSecAgg eq. 36: total - q for total >= (q - 1) / 2."""
    half = np.uint32((q - np.uint32(1)) >> np.uint32(1))
    modulus = np.float64(q)
    for j in range(out.size):
        x = np.float64(total[j])
        out[j] = (x - modulus if total[j] >= half else x) / divisor
