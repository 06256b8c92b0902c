"""Which implementation multiplies matrices over F_q: the table, and a choice by measurement.

The law: every backend gives the same bits, so a choice changes speed and nothing else. `auto` times each
available one once in a process, at one shape beside a float64 product of that shape, and keeps the fastest.

A transform over F_q, for a q where 2^k divides q - 1, would be faster still and is not here. It evaluates a
polynomial at all powers of a root of unity g of order 2^k. W is Vandermonde over the points 1 to n, which
are no such powers, nor a geometric progression (Bluestein's chirp), and decoding starts from any U of them.
User u's point would have to be g^u (mds.matrix over powers of g, n <= 2^k); decoding stays a dense product.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median

import numpy as np

from simfl.crypto import digits, limbs
from simfl.crypto.limbs import A32

Matmul = Callable[[A32, A32, int], A32]

AUTO = "auto"
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

_lock = threading.Lock()
_chosen: str | None = None


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
    """Choose a backend for this process, or `auto`: the fastest. ValueError if there is none of that name,
    or if it cannot be used here."""
    global _chosen
    if name != AUTO and name not in BACKENDS:
        raise ValueError(f"backend={name} must be one of {', '.join([AUTO, *BACKENDS])}")
    if name != AUTO and not BACKENDS[name].available():
        raise ValueError(f"backend={name} ({BACKENDS[name].summary}) cannot be used on this machine")
    with _lock:
        _chosen = None if name == AUTO else name


def chosen() -> str:
    """The backend's name; with `auto`, the first call measures (about 0.1 s) and the others wait for it."""
    global _chosen
    name = _chosen
    if name is None:
        with _lock:
            if _chosen is None:
                ratios = measure(_candidates())
                _chosen = min(ratios, key=ratios.__getitem__)
            name = _chosen
    return name


def measure(names: list[str], columns: int = _SHAPE[2]) -> dict[str, float]:
    """Name -> time as a multiple of a float64 product's, both [200, 140] by [140, columns] and the median
    of interleaved rounds, with as many threads as they use at present."""
    a, k, _ = _SHAPE
    W, Z = _operand(a, k), _operand(k, columns)
    ways = {name: partial(BACKENDS[name].matmul, W, Z, _PRIME) for name in names}
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
    ratios = measure(_candidates())
    rows = []
    for name, backend in BACKENDS.items():
        if not backend.available():
            speed = "not available"
        elif name in ratios:
            speed = f"{ratios[name]:.2g} x a float64 product's time"
        else:
            speed = f"{measure([name], columns=4)[name]:.0f} x a float64 product's time (4 columns)"
        rows.append((name, f"{speed}{', chosen' if name == best else ''}; {backend.summary}"))
    return rows


def _candidates() -> list[str]:
    return [name for name, backend in BACKENDS.items() if backend.automatic and backend.available()]


def _operand(rows: int, columns: int) -> A32:
    """Residues of every size, without a source of randomness."""
    multiples = np.arange(1, rows * columns + 1, dtype=np.uint64) * np.uint64(2654435761)
    return (multiples % np.uint64(_PRIME)).astype(np.uint32).reshape(rows, columns)
