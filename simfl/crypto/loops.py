"""The vector loops of field.py, prg.py and quantize.py, compiled: one pass each, no temporaries.

Invariant: a loop gives, bit for bit, what the numpy expressions in its docstring give. Integers wrap as
uint32 and uint64 do, floats are float64 in the order that is written (no fused multiply-add, no fast-math).
Callers check everything: a loop believes its arguments.
"""

from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from simfl.crypto import A32, A64, F64, I64, Floats
from simfl.crypto.compiling import BOOL, INT, REAL, REALS, WIDE, WORD, compiled, read, written

_COLUMNS = 8192  # of weighted_sum: two uint64 accumulators of 64 kB stay in the L2 cache
# Words are tested in groups for one that is no element, and where there is one, in smaller groups.
_GROUP, _SMALL_GROUP = 2048, 128


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(typing: Any, address: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(WORD)(WIDE), code


@compiled(types.void(read(WORD), read(WORD), WORD, BOOL, written(WORD)))
def combine(a: A32, b: A32, q: np.uint32, minus: bool, out: A32) -> None:
    """out = a - y + q (a < y), where y = b if minus, else q - b: a + b needs a 33rd bit, a - (q - b) not."""
    for j in range(out.size):
        y = b[j] if minus else np.uint32(q - b[j])
        difference = np.uint32(a[j] - y)
        out[j] = np.uint32(difference + q) if a[j] < y else difference


@compiled(types.void(read(WIDE), read(WORD), WIDE, written(WORD)))
def weighted_sum(addresses: A64, weights: A32, q: np.uint64, out: A32) -> None:
    """out = sum_k weights[k] v_k mod q, v_k the out.size uint32 at addresses[k].
    The number of rows is a multiple of 4: a core that reads four rows at a time reads twice as fast.
    Exact: where sum(weights) <= 2^32, in one uint64 sum; otherwise the products' halves are summed apart,
    each sum below 2^32 len(weights), and joined at the end as (high mod q) 2^32 + low mod q."""
    heaviest = np.uint64(0)
    for k in range(weights.size):
        heaviest += np.uint64(weights[k])
    narrow = heaviest <= np.uint64(2**32)  # (2^32)(2^32 - 1) < 2^64
    low = np.empty(_COLUMNS, np.uint64)
    high = np.empty(_COLUMNS, np.uint64)
    half, ones = np.uint64(32), np.uint64(2**32 - 1)
    for start in range(0, out.size, _COLUMNS):
        end = min(start + _COLUMNS, out.size)
        low[:] = 0
        high[:] = 0
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
                    w, x, y, z = s * a[j], t * b[j], u * c[j], v * d[j]
                    low[j] += (w & ones) + (x & ones) + (y & ones) + (z & ones)
                    high[j] += (w >> half) + (x >> half) + (y >> half) + (z >> half)
        for j in range(end - start):
            total = low[j] % q
            if not narrow:
                total = (((high[j] % q) << half) + total) % q  # (q - 1) 2^32 + q - 1 < 2^64
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
    """total += low + 2^16 high mod q, for product [2a, m] = low above high, of integers below 2^53."""
    a, inverse = len(total), 1.0 / q
    for i in range(a):
        for j in range(total.shape[1]):
            high = _reduced(product[a + i, j], q, inverse)
            total[i, j] += _reduced(high * 2.0**16 + product[i, j], q, inverse)


@compiled(types.void(written(REAL, 2), REAL, types.Array(WORD, 2, "A")))
def residues(total: F64, q: float, out: A32) -> None:
    """out = total mod q, for integers |total| < 2^53 - 2q."""
    # The quotient is off by less than 2^-51 |x| / q, which matters only to a residue next to 0 or q: if that
    # falls outside, q is added or taken away.
    inverse = 1.0 / q
    for i in range(total.shape[0]):
        for j in range(total.shape[1]):
            x = total[i, j] - np.floor(total[i, j] * inverse) * q
            x += q if x < 0.0 else 0.0
            out[i, j] = np.uint32(x - q if x >= q else x)


@compiled(INT(read(WORD), INT, WORD, WORD, written(INT), INT))
def _rejected(words: A32, first: int, kept: np.uint32, q: np.uint32, places: I64, count: int) -> int:
    """places[count:] = first + flatnonzero(words & kept >= q); how many places there are then."""
    for start in range(0, words.size, _SMALL_GROUP):
        few = words[start : start + _SMALL_GROUP]
        largest = np.uint32(0)
        for j in range(few.size):
            word = few[j] & kept
            largest = word if word > largest else largest
        if largest >= q:
            for j in range(few.size):
                if few[j] & kept >= q:
                    places[count] = first + start + j
                    count += 1
    return count


@compiled(INT(written(WORD), INT, WORD, WORD, written(INT)))
def mask_and_find(words: A32, first: int, kept: np.uint32, q: np.uint32, places: I64) -> int:
    """words &= kept, then places = first + flatnonzero(words >= q); how many there are."""
    count = 0
    for start in range(0, words.size, _GROUP):
        group = words[start : start + _GROUP]
        largest = np.uint32(0)
        if kept == np.uint32(2**32 - 1):
            for j in range(group.size):
                largest = group[j] if group[j] > largest else largest
        else:
            for j in range(group.size):
                word = group[j] & kept
                group[j] = word
                largest = word if word > largest else largest
        if largest >= q:
            count = _rejected(group, first + start, kept, q, places, count)
    return count


@compiled(INT(written(WORD), read(WORD), INT, WORD, WORD, BOOL, written(INT)))
def accumulate(
    total: A32, words: A32, first: int, kept: np.uint32, q: np.uint32, minus: bool, places: I64
) -> int:
    """total += words & kept mod q, or -= if minus, where those are below q.
    places and the result are as for `mask_and_find`."""
    count = 0
    for start in range(0, total.size, _GROUP):
        sums, group = total[start : start + _GROUP], words[start : start + _GROUP]
        largest = np.uint32(0)
        for j in range(sums.size):
            word = group[j] & kept
            largest = word if word > largest else largest
            element = word if word < q else np.uint32(0)
            y = element if minus else np.uint32(q - element)
            difference = np.uint32(sums[j] - y)
            sums[j] = np.uint32(difference + q) if sums[j] < y else difference
        if largest >= q:
            count = _rejected(group, first + start, kept, q, places, count)
    return count


@compiled(*(REAL(real, WORD, REAL, REAL) for real in (types.float32, types.float64)))
def _level(x: float, threshold: np.uint32, clip: float, levels: float) -> float:
    """floor(y) + (threshold < (y - floor(y)) 2^32), y = x clipped to [-clip, clip], times levels."""
    y = min(max(np.float64(x), -clip), clip) * levels
    floor: float = np.floor(y)
    return floor + 1.0 if np.float64(threshold) < (y - floor) * 2.0**32 else floor


@compiled(*(BOOL(real, read(WORD), REAL, REAL, written(INT)) for real in REALS))
def signed_levels(delta: Floats, words: A32, clip: float, levels: float, out: I64) -> bool:
    """out = the level of each coordinate. True if every one is finite, otherwise out is garbage."""
    strange = 0
    for j in range(out.size):
        strange += not abs(delta[j]) < np.inf
        out[j] = np.int64(_level(delta[j], words[j], clip, levels))
    return strange == 0


@compiled(*(BOOL(real, read(WORD), REAL, REAL, INT, INT, BOOL, written(WORD)) for real in REALS))
def quantise(
    delta: Floats, words: A32, clip: float, levels: float, weight: int, q: int, small: bool, out: A32
) -> bool:
    """out = weight * level mod q; the result as for signed_levels. small: every |weight * level| < q."""
    strange = 0
    if small:  # such products are exact in float64, and one addition of q takes them into the field
        for j in range(out.size):
            strange += not abs(delta[j]) < np.inf
            product = _level(delta[j], words[j], clip, levels) * np.float64(weight)
            out[j] = np.uint32(product + np.float64(q) if product < 0 else product)
    else:
        for j in range(out.size):
            strange += not abs(delta[j]) < np.inf
            level = np.int64(_level(delta[j], words[j], clip, levels))
            out[j] = np.uint32(level * weight % q)
    return strange == 0


@compiled(types.void(read(WORD), WORD, REAL, written(REAL)))
def dequantise(total: A32, q: np.uint32, divisor: float, out: F64) -> None:
    """out = phi^-1(total) / divisor, eq. 36: total - q from (q - 1)/2 on."""
    half = np.uint32((q - np.uint32(1)) >> np.uint32(1))
    modulus = np.float64(q)
    for j in range(out.size):
        x = np.float64(total[j])
        out[j] = (x - modulus if total[j] >= half else x) / divisor
