"""Cost of users who differ: a counted round of 10,000 of them, beside one in which all are alike.

    python benchmarks/people.py [repeats] [users]

The scenario is the one of `test_rounds.py`, with one round. A pass runs all ways once, one after another,
in one process. A figure is the minimum CPU time of a run with its summary; in brackets its ratio to `alike`.
`make bench` has the same ratios.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from typing import Any

import simfl
from benchmarks.test_rounds import MANY
from simfl.scenario.load import load

OWN = {"kind": "lognormal", "median": 6.0, "sigma": 1.0}  # a quarter of them below 3, as FedScale's are
LINK = {"uplink_mbps": 6.0, "downlink_mbps": 6.0, "latency_s": 0.04}
POWER = {
    "cpu_w": 2.0,
    "radio": {
        **{"up_j_per_mb": 3.0, "down_j_per_mb": 1.0, "active_w": 0.8},
        **{"tail_w": 0.6, "tail_s": 5.0, "idle_w": 0.02},
    },
}
BATTERY = {
    **{"capacity_j": 40_000.0, "level": {"kind": "uniform", "low": 0.3, "high": 1.0}, "base_w": 0.5},
    **{"charger_w": 5.0, "charging": "always", "comes_back_at": 0.2},
}
SECONDS = {"markov": [{"factor": 1.0, "dwell_s": 1.0}, {"factor": 0.5, "dwell_s": 1.0}]}

ALIKE = "alike"
WAYS: dict[str, dict[str, Any]] = {
    ALIKE: {},
    "own links": {"network.users.uplink_mbps": OWN, "network.users.downlink_mbps": OWN},
    "own links, which change each second": {
        "network.users.uplink_mbps": OWN,
        "network.users.downlink_mbps": OWN,
        "network.users.varies": SECONDS,
    },
    "3 classes": {
        "population.classes": {
            name: {"share": share, "network": {**LINK, "uplink_mbps": rate, "downlink_mbps": rate}}
            for name, share, rate in (("slow", 0.25, 3.0), ("usual", 0.5, 6.0), ("fast", 0.25, 12.0))
        }
    },
    "energy": {"population.energy": POWER},
    "energy and batteries": {"population.energy": POWER | {"battery": BATTERY}},
}
REACH = {"own links": 1.2}


def scenario(protocol: str, users: int) -> dict[str, Any]:
    return {
        **MANY,
        "rounds": 1,
        "protocols": [protocol],
        "population": {**MANY["population"], "users": users},
        "network": {**MANY["network"], "users": LINK},
        "privacy": {"T": users // 10, "D": users // 5},
        "memory_limit_gb": 12,
    }


def cpu_s(protocol: str, users: int, way: str) -> float:
    """Return the CPU seconds of a run and its summary."""
    loaded = load(scenario(protocol, users), WAYS[way])
    gc.collect()
    start = time.process_time()
    result = simfl.run(loaded)
    result.summarised()
    took = time.process_time() - start
    assert all(r.reason is None for rounds in result.rounds.values() for r in rounds), way
    return took


def least(protocol: str, users: int, repeats: int) -> Iterator[tuple[str, float]]:
    """Yield each way with its least CPU seconds."""
    cpu_s(protocol, 100, ALIKE)  # what is imported and compiled first
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way, times in taken.items():
            times.append(cpu_s(protocol, users, way))
    return ((way, min(times)) for way, times in taken.items())


def main(repeats: int = 3, users: int = 10_000) -> None:
    """Print the table."""
    for protocol in MANY["protocols"]:
        found = dict(least(protocol, users, repeats))
        for way, seconds in found.items():
            print(f"{protocol:<14}{way:<38}{seconds:8.2f} s ({seconds / found[ALIKE]:.2f})", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
