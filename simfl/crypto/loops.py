"""The vector loops of field.py, prg.py and quantize.py, compiled: one pass each, no temporaries.

The law: a loop gives, bit for bit, what the numpy expressions in its docstring give. Integers wrap as
uint32 and uint64 do, floats are float64 in the order that is written (no fused multiply-add, no fast-math).
Callers check everything: a loop believes its arguments.

Importing this module imports numba and compiles, or loads from numba's cache: callers do it inside their
functions, when there is a first vector. Every signature is explicit, so that no call compiles later.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import carray, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

A32 = NDArray[np.uint32]
A64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Loop = TypeVar("Loop", bound=Callable[..., object])

_COLUMNS = 8192  # of weighted_sum: two uint64 accumulators of 64 kB stay in the L2 cache
_GROUP = 2048  # words that are tested together for one that is no element,
_FEW = 128  # and these, where there was one
_MERSENNE = np.uint64(2**31 - 1)

_INT, _WORD, _WIDE, _REAL, _BOOL = types.int64, types.uint32, types.uint64, types.float64, types.boolean


def _out(kind: Any) -> Any:
    return types.Array(kind, 1, "C")


def _in(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


_REALS = (_in(types.float32), _in(types.float64))


def compiled(*signatures: Any) -> Callable[[Loop], Loop]:
    """Compile for these signatures now. Where numba finds no folder to cache in, every process compiles."""

    def decorate(loop: Loop) -> Loop:
        def compile_it(cache: bool) -> Any:
            return njit(list(signatures), cache=cache, nogil=True, error_model="numpy")(loop)

        try:
            fast: Loop = compile_it(cache=True)
        except (RuntimeError, OSError):
            fast = compile_it(cache=False)
        return fast

    return decorate


def _inttoptr(typing: Any, address: Any) -> Any:
    """An address as a pointer to uint32: a numba intrinsic, as numba.extending documents them."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(_WORD)(_WIDE), code


_pointer = intrinsic(_inttoptr)


@compiled(types.void(_in(_WORD), _in(_WORD), _WORD, _BOOL, _out(_WORD)))
def combine(a: A32, b: A32, q: np.uint32, minus: bool, out: A32) -> None:
    """out = a - y + q (a < y), where y = b if minus, else q - b: a + b needs a 33rd bit, a - (q - b) not."""
    for j in range(out.size):
        y = b[j] if minus else np.uint32(q - b[j])
        difference = np.uint32(a[j] - y)
        out[j] = np.uint32(difference + q) if a[j] < y else difference


@compiled(types.void(_in(_WIDE), _in(_WORD), _WIDE, _out(_WORD)))
def weighted_sum(addresses: A64, weights: A32, q: np.uint64, out: A32) -> None:
    """out = sum_k weights[k] v_k mod q, v_k the out.size uint32 at addresses[k].

    The number of rows is a multiple of 4: a core that reads four rows at a time reads twice as fast.
    Exact: where sum(weights) <= 2^32, in one uint64 sum; otherwise the products' halves are summed apart,
    each sum below 2^32 len(weights), and joined at the end as (high mod q) 2^32 + low mod q.
    """
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


@compiled(types.void(_in(_WORD), _WORD, _out(_WORD)))
def canonical(x: A32, q: np.uint32, out: A32) -> None:
    """out = x mod q."""
    largest = np.uint32(0)
    for j in range(out.size):
        out[j] = x[j]
        largest = x[j] if x[j] > largest else largest
    if largest >= q:
        for j in range(out.size):
            out[j] = np.uint32(x[j] % q)


@compiled(_REAL(_REAL, _REAL, _REAL))
def _reduced(x: float, q: float, inverse: float) -> float:
    """x mod q for an integer |x| < 2^53 - q: exact, and of magnitude at most q/2 + |x| 2^-51.

    The quotient may be rounded to the wrong neighbour, but only next to a tie; any integer times q is
    subtracted without rounding."""
    y: float = x - np.rint(x * inverse) * q
    return y


@compiled(types.void(types.Array(_REAL, 2, "C"), _REAL, types.Array(_REAL, 2, "C")))
def add_limbs(product: F64, q: float, total: F64) -> None:
    """total += low + 2^16 high mod q, for product [2a, m] = low above high, of integers below 2^53."""
    a, inverse = len(total), 1.0 / q
    for i in range(a):
        for j in range(total.shape[1]):
            high = _reduced(product[a + i, j], q, inverse)
            total[i, j] += _reduced(high * 2.0**16 + product[i, j], q, inverse)


@compiled(types.void(types.Array(_REAL, 2, "C"), _REAL, types.Array(_WORD, 2, "A")))
def residues(total: F64, q: float, out: A32) -> None:
    """out = total mod q, for integers |total| < 2^53 - 2q.

    The quotient is off by less than 2^-51 |x| / q, which matters only to a residue next to 0 or q: where one
    falls outside, q is added or taken away."""
    inverse = 1.0 / q
    for i in range(total.shape[0]):
        for j in range(total.shape[1]):
            x = total[i, j] - np.floor(total[i, j] * inverse) * q
            x += q if x < 0.0 else 0.0
            out[i, j] = np.uint32(x - q if x >= q else x)


@compiled(_INT(_in(_WORD), _INT, _WORD, _WORD, _out(_INT), _INT))
def _rejected(words: A32, first: int, kept: np.uint32, q: np.uint32, places: I64, found: int) -> int:
    """places[found:] = first + flatnonzero(words & kept >= q); how many places there are then."""
    for start in range(0, words.size, _FEW):
        few = words[start : start + _FEW]
        largest = np.uint32(0)
        for j in range(few.size):
            word = few[j] & kept
            largest = word if word > largest else largest
        if largest >= q:
            for j in range(few.size):
                if few[j] & kept >= q:
                    places[found] = first + start + j
                    found += 1
    return found


@compiled(_INT(_out(_WORD), _INT, _WORD, _WORD, _out(_INT)))
def cut(words: A32, first: int, kept: np.uint32, q: np.uint32, places: I64) -> int:
    """words &= kept, then places = first + flatnonzero(words >= q); how many there are."""
    found = 0
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
            found = _rejected(group, first + start, kept, q, places, found)
    return found


@compiled(_INT(_out(_WORD), _in(_WORD), _INT, _WORD, _WORD, _BOOL, _out(_INT)))
def accumulate(
    total: A32, words: A32, first: int, kept: np.uint32, q: np.uint32, minus: bool, places: I64
) -> int:
    """total += words & kept mod q, or -= if minus, where those are below q; places, result as for `cut`."""
    found = 0
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
            found = _rejected(group, first + start, kept, q, places, found)
    return found


@compiled(*(_REAL(real, _WORD, _REAL, _REAL) for real in (types.float32, types.float64)))
def _level(x: float, threshold: np.uint32, clip: float, levels: float) -> float:
    """floor(y) + (threshold < (y - floor(y)) 2^32), y = x clipped to [-clip, clip], times levels."""
    y = min(max(np.float64(x), -clip), clip) * levels
    floor: float = np.floor(y)
    return floor + 1.0 if np.float64(threshold) < (y - floor) * 2.0**32 else floor


@compiled(*(_BOOL(real, _in(_WORD), _REAL, _REAL, _out(_INT)) for real in _REALS))
def signed_levels(delta: Floats, words: A32, clip: float, levels: float, out: I64) -> bool:
    """out = the level of each coordinate; whether every coordinate is finite, otherwise out is garbage."""
    strange = 0
    for j in range(out.size):
        strange += not abs(delta[j]) < np.inf
        out[j] = np.int64(_level(delta[j], words[j], clip, levels))
    return strange == 0


@compiled(*(_BOOL(real, _in(_WORD), _REAL, _REAL, _INT, _INT, _BOOL, _out(_WORD)) for real in _REALS))
def quantise(
    delta: Floats, words: A32, clip: float, levels: float, weight: int, q: int, small: bool, out: A32
) -> bool:
    """out = weight * level mod q; finite or not, as for signed_levels.

    `small` promises that every |weight * level| < q: such products are exact in float64, and one addition
    of q takes them into the field.
    """
    strange = 0
    if small:
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


@compiled(types.void(_out(_WIDE), _WIDE))
def invert(x: A64, q: np.uint64) -> None:
    """x_i = 1 / x_i mod a prime q < 2^32, for x not zero.

    One inversion does for all: 1 / x_i is the product of those before it times 1 / (x_0 .. x_i).
    """
    before = np.empty_like(x)
    product = np.uint64(1)
    for i in range(x.size):
        before[i] = product
        product = product * x[i] % q
    inverse, square, exponent = np.uint64(1), product, q - np.uint64(2)
    while exponent:  # product^(q - 2): Fermat
        if exponent & np.uint64(1):
            inverse = inverse * square % q
        square = square * square % q
        exponent >>= np.uint64(1)
    for i in range(x.size - 1, -1, -1):
        after = inverse * x[i] % q
        x[i] = inverse * before[i] % q
        inverse = after


@compiled(types.void(_in(_WIDE), _WIDE, types.Array(_WORD, 2, "C")))
def lagrange(x: A64, q: np.uint64, out: A32) -> None:
    """Column j of out [m, n], m <= n: the m lowest coefficients mod q of the l_j with l_j(x_i) = (i == j).

    l_j = M_j(X) / M_j(x_j), M_j = prod_(i != j) (X - x_i), for x distinct and below a prime q < 2^32.
    """
    m, n = out.shape
    master = np.zeros(n + 1, np.uint64)  # prod (X - x_i)
    master[0] = np.uint64(1)
    for i in range(n):
        minus = q - x[i]
        for k in range(i + 1, 0, -1):
            master[k] = (master[k - 1] + master[k] * minus) % q
        master[0] = master[0] * minus % q
    quotient, value = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    for k in range(n - 1, -1, -1):  # synthetic division by every X - x_j, and Horner for the value there
        for j in range(n):
            quotient[j] = (quotient[j] * x[j] + master[k + 1]) % q
            value[j] = (value[j] * x[j] + quotient[j]) % q
        if k < m:
            for j in range(n):
                out[k, j] = np.uint32(quotient[j])
    invert(value, q)
    for k in range(m):
        for j in range(n):
            out[k, j] = np.uint32(out[k, j] * value[j] % q)


@compiled(*(_INT(real, _REAL) for real in _REALS))
def count_beyond(delta: Floats, clip: float) -> int:
    """count_nonzero(abs(delta) > clip)."""
    count = 0
    for j in range(delta.size):
        if np.float64(abs(delta[j])) > clip:
            count += 1
    return count


@compiled(_WIDE(_WIDE))
def _folded(x: np.uint64) -> np.uint64:
    """A number below 2^31 + 4 that is x modulo p = 2^31 - 1, since 2^31 = 1 there."""
    x = (x & _MERSENNE) + (x >> np.uint64(31))
    return (x & _MERSENNE) + (x >> np.uint64(31))


@compiled(_BOOL(_in(_WIDE), _out(_WIDE)))
def at_zero(x: A64, out: A64) -> bool:
    """out_i = prod_(j != i) x_j / (x_j - x_i) mod p = 2^31 - 1, 0 < x < p; whether all x differ."""
    for i in range(x.size):
        out[i] = x[i]
    product = np.uint64(1)
    for j in range(x.size):
        away = x[j] + _MERSENNE
        for i in range(j):
            out[i] = _folded(out[i] * (away - x[i]))
        for i in range(j + 1, x.size):
            out[i] = _folded(out[i] * (away - x[i]))
        product = product * x[j] % _MERSENNE
    for i in range(x.size):
        out[i] %= _MERSENNE
        if not out[i]:
            return False
    invert(out, _MERSENNE)
    for i in range(x.size):
        out[i] = out[i] * product % _MERSENNE
    return True


@compiled(_INT(types.Array(_WORD, 2, "C", readonly=True), _in(_WIDE), _in(_INT), types.Array(_WORD, 2, "C")))
def interpolate(values: A32, x: A64, start: I64, out: A32) -> int:
    """out[k, c] = f(0) mod p = 2^31 - 1, f(x[i]) = values[i, c] < p for i = start[k] .. start[k + 1] - 1.

    Returns the first k of whose x two are the same, or how many k there are.
    """
    weights, last = np.empty(0, np.uint64), np.empty(0, np.uint64)
    for k in range(start.size - 1):
        points, rows = x[start[k] : start[k + 1]], values[start[k] : start[k + 1]]
        if points.size != last.size or (points != last).any():
            weights, last = np.empty_like(points), points
            if not at_zero(points, weights):
                return k
        for c in range(out.shape[1]):
            total = np.uint64(0)
            for i in range(points.size):
                total += _folded(np.uint64(rows[i, c]) * weights[i])  # of at most 2^32
            out[k, c] = np.uint32(total % _MERSENNE)
    return start.size - 1


@compiled(types.void(_in(_WORD), _WORD, _REAL, _out(_REAL)))
def dequantise(total: A32, q: np.uint32, divisor: float, out: F64) -> None:
    """out = phi^-1(total) / divisor, eq. 36: total - q from (q - 1)/2 on."""
    half = np.uint32((q - np.uint32(1)) >> np.uint32(1))
    modulus = np.float64(q)
    for j in range(out.size):
        x = np.float64(total[j])
        out[j] = (x - modulus if total[j] >= half else x) / divisor
