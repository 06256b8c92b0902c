"""What a product over F_q costs, beside a float64 product of the same shape in the same run.

    python benchmarks/product.py [rounds]

W [a, k] by Z [k, m], the encoding of LightSecAgg for 200 users (U = 140) and for 1000 (U = 700), one thread.
A column is one backend (galois is left out: about 2,000 times a float64 product), its figure the median
time of the rounds, in which all take turns; in brackets the multiple of the float64 product's time, its
result allocated in the same way. Both operands of that one are float64 already. Without an argument there
are 7 rounds.
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from simfl.crypto import product

SHAPES = ((200, 140, 30_165), (1000, 700, 6_033))
PRIMES = (2**32 - 5, 2_147_352_577)


def milliseconds(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median wall time of each, one after the other in every round; the first round prepares."""
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds + 1):
        for name, way in work.items():
            start = time.perf_counter()
            way()
            taken[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(times[1:]) for name, times in taken.items()}


def main(rounds: int = 7) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    names = [name for name, b in product.BACKENDS.items() if b.automatic and b.available()]
    print(f"Python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__}; ", end="")
    print(f"chosen: {product.chosen()}; milliseconds (x float64)")
    print(f"{'W, Z':>24}{'q':>12}{'float64':>9}" + "".join(f"{name:>16}" for name in names))
    rng = np.random.default_rng(1)
    for a, k, m in SHAPES:
        for q in PRIMES:
            W, Z = rng.integers(0, q, (a, k), np.uint32), rng.integers(0, q, (k, m), np.uint32)
            left, right = W.astype(float), Z.astype(float)
            work: dict[str, Callable[[], object]] = {"": lambda left=left, right=right: left @ right}
            for name in names:
                matmul = product.BACKENDS[name].matmul
                work[name] = lambda matmul=matmul, W=W, Z=Z, q=q: matmul(W, Z, q)
            times = milliseconds(work, rounds)
            plain = times[""]
            cells = "".join(f"{times[n]:9.1f} {f'({times[n] / plain:.2f})':>6}" for n in names)
            print(f"{f'{a}x{k} by {k}x{m:,}':>24}{q:12}{plain:9.1f}{cells}", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main(*map(int, sys.argv[1:]))
