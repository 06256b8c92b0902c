"""Cost of choosing a round's users: microseconds a round of `multi_round`, beside a bare draw of k.

    python benchmarks/selection.py [rounds]

One run, one process; the best of five repeats of these rounds. A row is a number of users N with its k and
T; `uniform` and `fair` are lambda = 0 and 1, with every tenth user away, given as an array (as a list in the
next column). `choice` is numpy's draw of k of N without replacement, and the brackets how many of it that is.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.world.participation import Participation
from simfl.world.selection import MultiRound

SIZES = ((120, 12, 3, 2000), (99_999, 999, 3, 20))
REPEATS = 5


def microseconds(call: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        begun = time.perf_counter()
        for _ in range(rounds):
            call()
        best = min(best, time.perf_counter() - begun)
    return best / rounds * 1e6


def row(N: int, k: int, T: int, rounds: int) -> str:
    rng, history = np.random.Generator(np.random.Philox(1)), Participation(N)
    for _ in range(20):
        history.append(rng.choice(N, size=k, replace=False))
    array = np.flatnonzero(rng.random(N) >= 0.1)

    def select(available: Sequence[int] | NDArray[np.int64], fair: bool) -> float:
        scheme = MultiRound(users=k, T=T, fair=fair)
        return microseconds(lambda: scheme.chosen(available, history, rng), rounds)

    choice = microseconds(lambda: rng.choice(N, size=k, replace=False), rounds)
    costs = [select(array, False), select(array, True), select(array.tolist(), True)]
    cells = "".join(f"{cost:>10.0f} ({cost / choice:>5.1f})" for cost in costs)
    return f"{N:>8}{k:>6}{T:>4}{choice:>10.0f}{cells}"


def main() -> None:
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else None
    print(f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}; microseconds")
    print(f"{'N':>8}{'k':>6}{'T':>4}{'choice':>10}{'uniform':>18}{'fair':>18}{'fair, list':>18}")
    for N, k, T, rounds in SIZES:
        print(row(N, k, T, asked or rounds), flush=True)


if __name__ == "__main__":
    main()
