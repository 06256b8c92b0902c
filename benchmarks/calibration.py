"""Modelled against measured durations of whole rounds on this machine.

    python benchmarks/calibration.py [PROFILE.yaml]

Measures a profile of this machine (or takes one that `simfl calibrate` wrote), runs the protocols of
`scenarios/sync_breakdown.yaml` for 50 and 100 users under both clocks, and prints modelled / measured of a
round and of its phases, each the median over rounds: as the scenario has it, and with a network that takes
no time and devices as fast as this machine, so that nothing but computing is left. Exits with 1 if a total is
more than 15 % off, or more than 25 % a phase that makes up a twentieth of its round at least.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import simfl
from simfl.profiles import text
from simfl.results.metrics import Round
from simfl.studies.calibrate import passes

ROOT = Path(__file__).parents[1]
SCENARIO = ROOT / "scenarios" / "sync_breakdown.yaml"
USERS = (50, 100)
ROUNDS = 5
TOTAL, PHASE, SMALL = 0.15, 0.25, 0.05
FAST = {"uplink_mbps": 1e6, "downlink_mbps": 1e6}
WORLDS: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "computing only": {
        "population.devices": {"slowdown": 1.0, "cores": 2},
        "network": {"users": {**FAST, "latency_s": 0.0}, "server": FAST, "overhead_s": 0.0},
        "server": {"cores": 1},
    },
}


def durations(rounds: list[Round]) -> dict[str, float]:
    """Median seconds of the rounds and of each phase's span."""
    parts = {phase: statistics.median(r.span[phase] for r in rounds) / 1e9 for phase in rounds[0].span}
    return {"total": statistics.median(r.end - r.start for r in rounds) / 1e9, **parts}


def ratios(world: Mapping[str, Any], users: int, profile: Path) -> bool:
    """Print modelled / measured of each protocol; whether all are within their bounds."""
    overrides = {
        "population.users": users,
        "privacy": {"T": users // 10, "D": users // 10, "U": 8 * users // 10},
        "dropout.rate": 0.1,
        "rounds": ROUNDS,
        **world,
    }
    measured = simfl.run(SCENARIO, {**overrides, "clock": "measured"})
    modelled = simfl.run(
        SCENARIO, {**overrides, "clock": "modelled", "payload": "shadow", "profile": str(profile)}
    )
    good = True
    for name, rounds in measured.rounds.items():
        here, there = durations(rounds), durations(modelled.rounds[name])
        told = []
        for part, seconds in here.items():
            if not seconds:
                continue
            ratio, bound = there[part] / seconds, TOTAL if part == "total" else PHASE
            counts = seconds >= SMALL * here["total"]
            off = counts and abs(ratio - 1) > bound
            good &= not off
            told.append(f"{part} {ratio:.2f}{'!' if off else '' if counts else ' (small)'}")
        print(f"  N = {users:<4} {name:<12} {here['total']:8.3f} s   {', '.join(told)}", flush=True)
    return good


def main() -> None:
    """Both worlds, both numbers of users."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "profile.yaml"
        if len(sys.argv) == 1:
            file.write_text(text(passes.calibrate(21)))
        good = True
        for name, world in WORLDS.items():
            print(name)
            for users in USERS:
                good &= ratios(world, users, file)
    sys.exit(not good)


if __name__ == "__main__":
    main()
