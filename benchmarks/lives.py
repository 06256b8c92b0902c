"""The cost of a wait: SimPy's process with timeouts, a life with naps, and bare callbacks.

    python benchmarks/lives.py [USERS [WAITS]]

All users live at once, as in a round. CPU time; the best of three turns counts.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import simpy

from simfl.engine.environment import Environment
from simfl.engine.life import Life, Waits


def process(env: Environment, waits: int) -> None:
    def live() -> Generator[simpy.Event, Any, None]:
        for k in range(waits):
            yield env.timeout(1000 + k)

    env.process(live())


def life(env: Environment, waits: int) -> None:
    def live() -> Waits:
        for k in range(waits):
            yield 1000 + k

    Life(env, live())


def callbacks(env: Environment, waits: int) -> None:
    def call(k: int) -> None:
        if k < waits:
            env.call_at(env.now + 1000 + k, partial(call, k + 1))

    call(0)


def cost_us(begin: Callable[[Environment, int], None], users: int, waits: int) -> float:
    """Return the microseconds of CPU time a user."""
    gc.collect()
    env, start = Environment(), time.process_time()
    for _ in range(users):
        begin(env, waits)
    while env.run_slice(100_000):
        pass
    return (time.process_time() - start) / users * 1e6


def main(users: int = 131_072, waits: int = 6) -> None:
    ways = {"simpy.Process, Timeout": process, "Life, nanoseconds": life, "callbacks": callbacks}
    taken = [{name: cost_us(begin, users, waits) for name, begin in ways.items()} for _ in range(3)]
    for name in ways:
        print(f"{name:24}{min(turn[name] for turn in taken):6.1f} us a user of {waits} waits")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
