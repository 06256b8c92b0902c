"""What a row of the trace costs the engine, beside a bare SimPy timeout in the same run.

    python benchmarks/engine.py

Shadow payload, modelled clock. A row is a step, a message, a timer, ...: its machine's work and all events
that led to it are in its cost. The yardstick is a process of SimPy with 10 timeouts, 5,000 of them at once.
CPU time, Python's collector as a run has it; each figure is the median of three, with a yardstick before and
after each.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Generator
from typing import Any

import simpy
from asynchronous import WORLD, scenario

from simfl.runs.build import build, make_clocks
from simfl.scenario.load import load
from simfl.trace.rows import seldom_collecting

REPEATS = 3
PROCESSES, TIMEOUTS = 5_000, 10

SYNC = {
    **WORLD,
    "rounds": 5,
    "population": {**WORLD["population"], "users": 1000},
    "deadlines": {"upload": 120},
    "protocols": ["fedavg"],
}
RUNS = {
    "fedavg, 1,000 users, 5 rounds": SYNC,
    "fedbuff, 1,000 users, 10,000 uploads": scenario("fedbuff", 1000, 10_000, 10),
    "lightsecagg_async, 1,000 users, 500 uploads": scenario("lightsecagg_async", 1000, 500, 10),
}


def bare() -> float:
    """Microseconds a timeout."""

    def process(env: simpy.Environment) -> Generator[simpy.Event, Any, None]:
        for k in range(TIMEOUTS):
            yield env.timeout(100 + k)

    env = simpy.Environment()
    for _ in range(PROCESSES):
        env.process(process(env))
    start = time.process_time()
    env.run()
    return (time.process_time() - start) / (PROCESSES * TIMEOUTS) * 1e6


def engine(world: dict[str, Any]) -> tuple[float, int]:
    """Microseconds a row, and the rows."""
    study = build(load(world))
    (name,) = study.scenario.protocols
    session = study.session(name, make_clocks(study)(name))
    with seldom_collecting():
        start = time.process_time()
        while not session.done:
            session.env.run_slice(session.ops.events_per_slice)
        taken = time.process_time() - start
    return taken / len(session.trace) * 1e6, len(session.trace)


def main() -> None:
    """Print the table."""
    print(f"Python {platform.python_version()}, SimPy {simpy.__version__}")
    print(f"{'run':<46}{'rows':>9}{'us a row':>10}{'timeout':>9}{'ratio':>7}")
    for name, world in RUNS.items():
        rows, ratios, costs, yardsticks = 0, [], [], []
        for _ in range(REPEATS):
            before = bare()
            cost, rows = engine(world)
            yardsticks.append((before + bare()) / 2)
            costs.append(cost)
            ratios.append(cost / yardsticks[-1])
        us, timeout, ratio = map(statistics.median, (costs, yardsticks, ratios))
        print(f"{name:<46}{rows:>9,}{us:>10.1f}{timeout:>9.2f}{ratio:>7.1f}", flush=True)


if __name__ == "__main__":
    main()
