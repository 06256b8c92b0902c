"""The same CNN run in this process, on a cluster of one worker here and on one of two.

    python benchmarks/cluster.py [repeats] [ADDRESS ...]

20 users with the digits, E = 12, B = 10, LightSecAgg, way loop, modelled clock. Wall-clock seconds from the
first training to the end, once the workers run (their start is a separate figure): the minimum of the
repeats, in which all take turns. Needs as many free cores as workers. ADDRESS: running clusters, such as
ray://127.0.0.1:10001.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import Any

import simfl
from simfl.connect import remote
from simfl.trace import rows as trace

SCENARIO: dict[str, Any] = {
    "name": "cluster",
    "seed": 7,
    "clock": "modelled",
    "rounds": 4,
    "population": {"users": 20, "devices": {"slowdown": 10.0}},
    "network": {
        "users": {"preset": "4g", "latency_s": 0.04},
        "server": {"uplink_mbps": 1000, "downlink_mbps": 1000},
        "overhead_s": 0.0002,
    },
    "detect": {"disconnect": 0.0},
    "deadlines": {"advertise": 30, "shares": 30, "upload": 120, "recovery": 30},
    "privacy": {"T": 4, "D": 4, "U": 14},
    "quantization": {"levels": 65536, "clip": 4.0},
    "learning": {
        "dataset": "digits", "model": "cnn", "way": "loop", "epochs": 12, "batch_size": 10, "lr": 0.1,
    },
    "protocols": ["lightsecagg"],
}  # fmt: skip
PLACES = (None, "local:1", "local:2")


def timed(cluster: str | None) -> tuple[float, float, list[str]]:
    """Return the seconds until the workers run, the seconds of the run after that, and its trace."""
    since, ready = time.monotonic(), 0.0
    connected = remote.connected

    @contextmanager
    def noting(*args: Any) -> Any:
        nonlocal ready
        with connected(*args) as there:
            ready = time.monotonic()
            yield there
            done.append(time.monotonic())

    done: list[float] = []
    remote.connected = noting
    try:
        result = simfl.run(SCENARIO, cluster=cluster)
    finally:
        remote.connected = connected
    ready, end = ready or since, (done or [time.monotonic()])[0]
    return ready - since, end - ready, list(trace.lines(result.traces))


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    places = (*PLACES, *sys.argv[2:])
    times: dict[str | None, list[tuple[float, float]]] = {place: [] for place in places}
    traces = []
    for _ in range(repeats):
        for place in places:
            start, run, lines = timed(place)
            times[place].append((start, run))
            traces.append(lines)
    assert all(lines == traces[0] for lines in traces), "the traces differ"
    least = {place: min(run for _, run in each) for place, each in times.items()}
    for place, each in times.items():
        start = min(start for start, _ in each)
        print(f"{place or 'in line':<8} {least[place]:7.2f} s, after {start:.2f} s to start the workers")
    print(f"two workers: {least['local:1'] / least['local:2']:.2f} x one, {repeats} repeats")


if __name__ == "__main__":
    main()
