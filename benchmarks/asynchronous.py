"""Cost of asynchronous runs at scale: CPU seconds, peak memory and rows a second, with and without files.

    python benchmarks/asynchronous.py

Shadow payload, modelled clock: FedBuff with 1,000,000 users and 100,000 uploads, asynchronous LightSecAgg
with 1,000 users and 10,000 uploads, each with buffers of 10 and of 100. Each run is a separate process, and
all of its CPU time counts, imports included.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import Any

WORLD: dict[str, Any] = {
    "seed": 7,
    "clock": "modelled",
    "payload": "shadow",
    "population": {"devices": {"slowdown": {"kind": "lognormal", "median": 50, "sigma": 0.5}}},
    "network": {
        "users": {"preset": "4g", "latency_s": 0.02},
        "server": {"uplink_mbps": 1000, "downlink_mbps": 1000},
        "overhead_s": 0.0002,
    },
    "server": {"cores": 4},
    "detect": {"disconnect": 1.0},
    "deadlines": {"advertise": 30, "upload": 120, "recovery": 30},
    "quantization": {"levels": 8192, "clip": 8.0},
    "learning": {"epochs": 20, "batch_size": 10, "lr": 1.0, "server_lr": 0.25},
}
"""The world of scenarios/async_buffer.yaml, with fewer levels, so that 100 updates fit the field."""

RUNS = (
    ("fedbuff", 1_000_000, 100_000, 10),
    ("fedbuff", 1_000_000, 100_000, 100),
    ("lightsecagg_async", 1_000, 10_000, 10),
    ("lightsecagg_async", 1_000, 10_000, 100),
)
"""Protocol, users, uploads that are aggregated, K."""


def scenario(protocol: str, users: int, uploads: int, K: int) -> dict[str, Any]:
    """Uploads in buffers of K, four buffers' worth of users in flight."""
    return {
        **WORLD,
        "rounds": uploads // K,
        "population": {**WORLD["population"], "users": users},
        "buffer": {"K": K, "staleness_bound": 10, "concurrency": 4 * K},
        "privacy": {"T": users // 2, "D": users * 3 // 10, "U": users * 7 // 10},
        "protocols": [protocol],
    }


def measure(protocol: str, users: int, uploads: int, K: int, files: bool) -> dict[str, float]:
    """One run in this process."""
    import resource

    import simfl

    with tempfile.TemporaryDirectory() as folder:
        result = simfl.run(scenario(protocol, users, uploads, K), out=folder if files else None)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    (trace,) = result.traces.values()
    return {
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_gb": usage.ru_maxrss * 1024 / 1e9,
        "rows": len(trace),
    }


def main() -> None:
    """Print the table, a line as soon as it is known."""
    print(f"{'protocol':<20}{'users':>10}{'uploads':>9}{'K':>5}{'files':>7}", end="")
    print(f"{'CPU s':>8}{'peak GB':>9}{'rows':>11}{'rows/s':>9}")
    for run in RUNS:
        for files in (False, True):
            command = [sys.executable, __file__, json.dumps([*run, files])]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            got = json.loads(done.stdout)
            protocol, users, uploads, K = run
            print(f"{protocol:<20}{users:>10,}{uploads:>9,}{K:>5}{'yes' if files else 'no':>7}", end="")
            print(f"{got['cpu_s']:>8.1f}{got['peak_gb']:>9.2f}{got['rows']:>11,}", end="")
            print(f"{got['rows'] / got['cpu_s']:>9,.0f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(*json.loads(sys.argv[1]))))
    else:
        main()
