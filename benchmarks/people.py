"""Cost of users who differ, and of millions of users.

    python benchmarks/people.py [repeats] [users]   a counted round of 10,000, beside equal users
    python benchmarks/people.py millions            three rounds of 1,000, out of 1 to 10 million

The scenario is the one of `test_rounds.py`, with one round. A pass runs all ways once, one after another,
in one process. A figure is the minimum CPU time of a run with its summary; in brackets its ratio to `alike`.
`make bench` has the same ratios.

Of millions, each run is a process of its own: all of its CPU time counts, imports and summary included, and
memory is the maximum that was resident. In brackets is the CPU time relative to that of the main job,
`python run.py scenarios/async_buffer.yaml --clock modelled`, which runs first and last.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
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


ROOT = Path(__file__).parents[1]
MAIN = ["run.py", "scenarios/async_buffer.yaml", "--clock", "modelled", "--out"]
CHOSEN = {"selection": {"random": 1_000}}
NIGHT = {"kind": "diurnal", "low": 0.02, "high": 0.4, "peak_s": 0.0, "spread_s": 7200.0, "slot_s": 60.0}
CHECK_IN = {"check_in": {"every_s": 21_600, "within_s": 120, "users": 1_500}}
MILLIONS: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
    ("1,000 chosen", "fedavg", 1_000_000, CHOSEN),
    ("1,000 chosen", "fedavg", 10_000_000, CHOSEN),
    ("1,000 chosen", "secagg_plus", 10_000_000, CHOSEN),
    ("1,000 chosen, own links", "secagg_plus", 10_000_000, {**CHOSEN, **WAYS["own links"]}),
    ("1,000 chosen of 1,500 checked in", "secagg_plus", 10_000_000,
     {**CHOSEN, **CHECK_IN, "population.availability": NIGHT}),
    ("buffers of 1,000, 2,000 in flight", "fedbuff", 10_000_000,
     {"buffer": {"K": 1_000, "staleness_bound": 10, "concurrency": 2_000}}),
)  # fmt: skip


def cost(*arguments: str) -> tuple[float, float]:
    """Return the CPU seconds and the maximum memory [GB] of a Python process."""
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, arguments
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9


def of_millions(protocol: str, users: int, changes: dict[str, Any]) -> None:
    """Run three rounds, and summarise them."""
    learning = {"dataset": {"kind": "synthetic", "train": 20_000}, "partition": {"drawn": 20}}
    world = scenario(protocol, 1_000) | {"rounds": 3, "learning": learning, "dropout": "none"}
    world["population"] = {**world["population"], "users": users}
    result = simfl.run(load(world, changes))
    assert all(r.reason is None for r in result.rounds[protocol])
    result.summarised()


def millions() -> None:
    """Print the table of millions, a line as soon as it is known."""
    with tempfile.TemporaryDirectory() as folder:
        main_s, main_gb = cost(*MAIN, folder)
        print(f"{'the main job':<64}{main_s:8.1f} s {main_gb:6.2f} GB", flush=True)
        for name, protocol, users, changes in MILLIONS:
            run = json.dumps([protocol, users, changes])
            took_s, held_gb = cost("-m", "benchmarks.people", "one", run)
            label = f"{users:>10,} users, {protocol}, {name}"
            print(f"{label:<64}{took_s:8.1f} s {held_gb:6.2f} GB ({took_s / main_s:.2f})", flush=True)
        print(f"{'the main job':<64}{cost(*MAIN, folder)[0]:8.1f} s")


def main(repeats: int = 3, users: int = 10_000) -> None:
    """Print the table."""
    for protocol in MANY["protocols"]:
        found = dict(least(protocol, users, repeats))
        for way, seconds in found.items():
            print(f"{protocol:<14}{way:<38}{seconds:8.2f} s ({seconds / found[ALIKE]:.2f})", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["millions"]:
        millions()
    elif sys.argv[1:2] == ["one"]:
        of_millions(*json.loads(sys.argv[2]))
    else:
        main(*map(int, sys.argv[1:]))
