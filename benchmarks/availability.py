"""Cost of users' churn, relative to the same run in which all users are always online.

    python benchmarks/availability.py

Shadow payload, modelled clock, FedBuff in the world of benchmarks/asynchronous.py: 100,000 users and 25,000
uploads, 28 virtual seconds, with each kind of availability by time and states of 10 s; then 1,000,000 users
with such states and 100,000 uploads, 110 virtual seconds; `entries` are those of a trace that wraps, of which
each user draws one. Each run is a separate process, and all of its CPU time counts, imports included. Memory
is the maximum that was resident, and its excess over the memory before simfl was imported.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from asynchronous import scenario

STATE_S, UNTIL_S = 10.0, 60.0
ENTRIES = 100_000
EXPONENTIAL = {"exponential": STATE_S}
KINDS: dict[str, Any] = {
    "always": "always",
    "bernoulli": {"kind": "bernoulli", "p": 0.5, "slot_s": STATE_S},
    "sessions": {"kind": "sessions", "on_s": EXPONENTIAL, "off_s": EXPONENTIAL},
    "diurnal": {
        **{"kind": "diurnal", "low": 0.2, "high": 0.8, "peak_s": 0.0},
        **{"spread_s": 200.0, "slot_s": STATE_S, "period_s": 1000.0},
    },
    "trace": {"trace": "online.csv"},
    "entries": {"kind": "trace", "file": "online.csv", "assign": "draw", "period_s": UNTIL_S + STATE_S},
}
RUNS = (
    *((kind, 100_000, 25_000) for kind in KINDS),
    *((kind, 1_000_000, 100_000) for kind in ("always", "bernoulli", "sessions", "diurnal", "entries")),
)
"""Availability, users, uploads that are aggregated, in buffers of 10."""


def write_trace(path: Path, users: int) -> None:
    """Half of the users at a time, each offline as long as online."""
    rng = random.Random(1)
    with path.open("w") as file:
        file.write("user,from_s,to_s\n")
        for user in range(users):
            at = STATE_S * (2 * rng.random() - 1)
            while at < UNTIL_S:
                begin = round(max(at, 0.0), 3)
                file.write(f"{user},{begin},{max(begin + 0.001, at + STATE_S):.3f}\n")
                at += 2 * STATE_S


def measure(kind: str, users: int, uploads: int) -> dict[str, float]:
    """One run in this process."""
    import resource

    def peak_mb() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6

    before_mb = peak_mb()
    import simfl

    result = simfl.run(scenario("fedbuff", users, uploads, 10), {"population.availability": KINDS[kind]})
    usage = resource.getrusage(resource.RUSAGE_SELF)
    (trace,) = result.traces.values()
    return {
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": peak_mb(),
        "growth_mb": peak_mb() - before_mb,
        "rows": len(trace),
        "torch": "torch" in sys.modules,
    }


def main() -> None:
    """Print the table, a line as soon as it is known."""
    print(f"{'availability':<14}{'users':>10}{'uploads':>9}{'CPU s':>8}{'/ always':>10}", end="")
    print(f"{'peak MB':>9}{'/ always':>10}{'growth MB':>11}{'rows':>10}{'torch':>7}")
    always, resident = 1.0, 1.0
    with tempfile.TemporaryDirectory() as folder:
        write_trace(Path(folder) / "online.csv", ENTRIES)
        for run in RUNS:
            command = [sys.executable, Path(__file__).resolve(), json.dumps(run)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
            got = json.loads(done.stdout)
            kind, users, uploads = run
            if kind == "always":
                always, resident = got["cpu_s"], got["peak_mb"]
            print(
                f"{kind:<14}{users:>10,}{uploads:>9,}{got['cpu_s']:>8.1f}{got['cpu_s'] / always:>10.2f}",
                end="",
            )
            print(f"{got['peak_mb']:>9.0f}{got['peak_mb'] / resident:>10.2f}", end="")
            print(f"{got['growth_mb']:>11.0f}{got['rows']:>10,}", end="")
            print(f"{'yes' if got['torch'] else 'no':>7}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(*json.loads(sys.argv[1]))))
    else:
        main()
