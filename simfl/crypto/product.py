"""Which implementation multiplies matrices over F_q: the table, and a choice by measurement.

The law: every backend gives the same bits, so a choice changes speed and nothing else. `auto` times each
available one once in a process, at one shape beside a float64 product of that shape, and keeps the fastest.

One more is no product of matrices: where W is Vandermonde over roots of unity, as an MDS code's can be, W Z
is a number theoretic transform (ntt.py). It is timed beside the others. For another shape, times are scaled
by the rows that its passes go over, and by the size of W: few points among many roots are left to a product.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median

import numpy as np

from simfl.crypto import digits, limbs, ntt
from simfl.crypto.limbs import A32

Matmul = Callable[[A32, A32, int], A32]

AUTO = "auto"
NTT = "ntt"
SMALL = 1 << 22  # multiplications (0.2 ms of float64 BLAS) from which the choice matters

_SHAPE = (200, 140, 2048)  # LightSecAgg's encoding for 200 users, a part of its columns
_PRIME = 2**32 - 5
_ROUNDS = 5


@dataclass(frozen=True)
class Backend:
    """One implementation of W Z mod q; `automatic` when it may be chosen by its speed."""

    matmul: Matmul
    available: Callable[[], bool]
    summary: str
    automatic: bool = True


def _reference(W: A32, Z: A32, q: int) -> A32:
    """W Z mod q by galois, for q prime."""
    import galois

    field = galois.GF(q, compile="python-calculate")
    return np.asarray(field(W.astype(object)) @ field(Z.astype(object))).astype(np.uint32)


BACKENDS: dict[str, Backend] = {
    "limbs": Backend(limbs.matmul, lambda: True, "two 16-bit limbs of W on float64 BLAS"),
    "digits": Backend(digits.matmul, digits.available, "signed 8-bit digits on torch's int8 product"),
    "galois": Backend(
        _reference, lambda: find_spec("galois") is not None, "galois, slow: the reference", automatic=False
    ),
}

_TRANSFORM = "a number theoretic transform, to encode only and where q allows it (field.q: ntt)"

_lock = threading.Lock()
_asked = AUTO
_ratios: dict[str, float] = {}


def matmul(W: A32, Z: A32, q: int) -> A32:
    """W Z mod q for W [a, k] and Z [k, m], as [a, m], by the chosen backend; a small product by limbs.

    Exact for canonical elements of any prime q < 2^32. ValueError if the inner sizes differ.
    """
    if W.shape[1] != Z.shape[0]:
        raise ValueError(f"inner sizes differ: {W.shape} times {Z.shape}")
    if W.size * Z.shape[1] < SMALL:
        return limbs.matmul(W, Z, q)
    return BACKENDS[chosen()].matmul(W, Z, q)


def use(name: str) -> None:
    """Choose a backend for this process, or `auto`: the fastest. `ntt` encodes by transforms wherever they
    reach the points, and multiplies as `auto` does. ValueError if there is none of that name, or if it cannot
    be used here."""
    global _asked
    if name not in (AUTO, *BACKENDS, NTT):
        raise ValueError(f"backend={name} must be one of {', '.join([AUTO, *BACKENDS, NTT])}")
    if name in BACKENDS and not BACKENDS[name].available():
        raise ValueError(f"backend={name} ({BACKENDS[name].summary}) cannot be used on this machine")
    with _lock:
        _asked = name
        _ratios.clear()


def chosen() -> str:
    """The name of what multiplies; with `auto`, the first call measures (about 0.1 s) and the others wait for
    it."""
    if _asked in BACKENDS:
        return _asked
    ratios = _speeds()
    return min(_candidates(), key=ratios.__getitem__)


def transforms(how: ntt.Plan, U: int, columns: int) -> bool:
    """Whether to encode U rows of so many columns by this transform, not by a product: as was asked for, or
    else, unless it is a small product, if it is expected to be faster."""
    if _asked != AUTO:
        return _asked == NTT
    macs = how.rows.size * U
    if macs * columns < SMALL:
        return False
    ratios, (n, k, _) = _speeds(), _SHAPE
    transform = ratios[NTT] * how.work / _plan(n, k).work
    return transform < ratios[chosen()] * macs / (n * k)


def _speeds() -> dict[str, float]:
    with _lock:
        if not _ratios:
            _ratios.update(measure([*_candidates(), NTT]))
        return _ratios


def measure(names: list[str], columns: int = _SHAPE[2]) -> dict[str, float]:
    """Name -> time as a multiple of a float64 product's, both [200, 140] by [140, columns] and the median
    of interleaved rounds, with as many threads as they use at present."""
    a, k, _ = _SHAPE
    W, Z = _operand(a, k), _operand(k, columns)
    ways = {name: partial(BACKENDS[name].matmul, W, Z, _PRIME) for name in names if name != NTT}
    if NTT in names:
        ways[NTT] = partial(ntt.evaluate, Z % np.uint32(ntt.Q), _plan(a, k), ntt.Q)
    work: dict[str, Callable[[], object]] = {"": partial(np.matmul, W.astype(float), Z.astype(float)), **ways}
    taken: dict[str, list[float]] = {name: [] for name in work}
    for i in range(_ROUNDS + 1):
        for name, way in work.items():
            start = time.perf_counter()
            way()
            if i:  # the first call prepares
                taken[name].append(time.perf_counter() - start)
    return {name: median(taken[name]) / median(taken[""]) for name in names}


def describe() -> list[tuple[str, str]]:
    """Each backend's name, and in words: how fast it is here, or that it cannot be used; what it is."""
    best = chosen()
    ratios = measure([*_candidates(), NTT])
    rows = []
    for name, backend in BACKENDS.items():
        if not backend.available():
            speed = "not available"
        elif name in ratios:
            speed = f"{ratios[name]:.2g} x a float64 product's time"
        else:
            speed = f"{measure([name], columns=4)[name]:.0f} x a float64 product's time (4 columns)"
        rows.append((name, f"{speed}{', chosen' if name == best else ''}; {backend.summary}"))
    return [*rows, (NTT, f"{ratios[NTT]:.2g} x a float64 product's time; {_TRANSFORM}")]


def _candidates() -> list[str]:
    return [name for name, backend in BACKENDS.items() if backend.automatic and backend.available()]


def _plan(n: int, U: int) -> ntt.Plan:
    """For the first n points and U coefficients."""
    points = tuple(ntt.point(user, ntt.Q) for user in range(n))
    how = ntt.plan(points, U, ntt.Q)
    assert how is not None
    return how


def _operand(rows: int, columns: int) -> A32:
    """Residues of every size, without a source of randomness."""
    multiples = np.arange(1, rows * columns + 1, dtype=np.uint64) * np.uint64(2654435761)
    return (multiples % np.uint64(_PRIME)).astype(np.uint32).reshape(rows, columns)
