"""The evidence of docs/reality.md: a grid of live runs on this machine. As root, for kernel links.

    python -m benchmarks.live [PART]      only the cells whose names have this part in them

It continues where it was stopped: each run is written to benchmarks/results/live as it ends. Links are pinged
first. Processes are scheduled in real time if that is permitted, so that other work does not count. A run
with overrun above 2 % is repeated once.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from contextlib import nullcontext, suppress
from dataclasses import asdict

import simfl
from benchmarks.kernel_links import opened
from benchmarks.live_grid import (
    LINKS,
    RUNS,
    Cell,
    calibration,
    cells,
    kept,
    ping_of,
    read,
    scenario,
    write,
)
from simfl.errors import RunFailed, ScenarioError
from simfl.live.live_protocol import LiveStats, prepared
from simfl.live.run_live import WARN_OVERRUN, run_live, scheduler
from simfl.runs.folder.result import Result
from simfl.scenario.schema import Scenario

TRIES = 2
"""A run of which this machine was too busy is played again, and the one with the least overrun is kept."""


def main(part: str = "") -> int:
    """Play what is not there yet; return the number of runs that failed."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))  # and 1 for trainings
    began = time.monotonic()
    wanted = [cell for cell in cells() if part in cell.name]
    write("machine", {"cores": os.cpu_count(), "kernel": platform.release(), "scheduler": scheduler()})
    for bandwidth, links in sorted({(cell.bandwidth, cell.links) for cell in wanted}):
        _ping(bandwidth, links)
    failed = 0
    for repeat in range(RUNS):  # all cells once before any is played again
        for cell in list(wanted):
            try:
                _play(cell, repeat, began)
            except ScenarioError as refused:
                print(f"{cell.name}: not played: {refused}")
                wanted.remove(cell)
            except RunFailed as problem:
                print(f"{cell.name}: failed: {problem}", flush=True)
                failed += 1
    return failed


def _ping(bandwidth: str, links: str) -> None:
    name = f"ping-{links}-{bandwidth.replace('/', '_')}"
    if read(name):
        return
    s = ping_of(bandwidth, links)
    real, stats = _played(s, links)
    found = calibration(real.traces["secagg"], simfl.run(s, {"payload": "shadow"}).traces["secagg"])
    write(name, {**found._asdict(), "figures": asdict(stats)})
    print(f"{name}: {1e3 * found.latency_s:.2f} ms a message, {1e3 * found.overhead_s:.2f} ms a step")


def _play(cell: Cell, repeat: int, began: float) -> None:
    runs = read(cell.name).get("runs", [])
    if len(runs) > repeat:
        return
    tries = [_played(scenario(cell), cell.links)]
    while min(late(one) for one in tries) > WARN_OVERRUN and len(tries) < TRIES:
        tries.append(_played(scenario(cell), cell.links))
    result, stats = min(tries, key=late)
    exact = [m.aggregate_exact for m in result.measured[cell.protocol]]
    run = {
        **kept(result, cell.protocol),
        "exact": all(exact),
        "tries": len(tries),
        "figures": asdict(stats),
    }
    write(cell.name, {"cell": cell._asdict(), "runs": [*runs, run]})
    done = f"{cell.name}: {stats.wall_s:.1f} s, overrun {stats.overrun:.1%}"
    print(f"{done}, {time.monotonic() - began:.0f} s so far", flush=True)


def late(one: tuple[Result, LiveStats]) -> float:
    """Return the share of a run's step time that this machine could not deliver."""
    return one[1].overrun


def _played(s: Scenario, links: str) -> tuple[Result, LiveStats]:
    (name,) = s.protocols
    (delay, _), study = LINKS[links], prepared(s)
    with nullcontext() if delay is None else opened(study, delay) as sockets:
        result, stats = run_live(study, sockets=sockets)
    return result, stats[name]


if __name__ == "__main__":
    sys.exit(min(1, main(*sys.argv[1:])))
