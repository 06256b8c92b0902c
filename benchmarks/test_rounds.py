"""Whole rounds of the paper's size and beyond, each in a separate process: CPU seconds and peak memory.

N = 200 users, T = 100, d = 1,206,590 (FEMNIST's CNN), one sample a user, so that protocols and not training
take the time. Absolute times mean little; `of AES` and `of float64` are the numbers of keystreams and of
products of the round's own sizes that fit into its CPU time on this machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAPER: dict[str, Any] = {
    "seed": 1,
    "clock": "modelled",
    "rounds": 1,
    "population": {
        "users": 200,
        "devices": {"slowdown": {"kind": "uniform", "low": 8.0, "high": 16.0}, "cores": 2},
    },
    "network": {
        "users": {"preset": "4g", "latency_s": 0.04},
        "server": {"uplink_mbps": 10000.0, "downlink_mbps": 10000.0},
        "overhead_s": 0.0002,
    },
    "server": {"cores": 4},
    "detect": {"disconnect": 0.0},
    "deadlines": {"advertise": 3000.0, "shares": 3000.0, "upload": 12000.0, "recovery": 3000.0},
    "dropout": {"rate": 0.3},
    "privacy": {"T": 100, "D": 60, "U": 140},
    "quantization": {"levels": 65536, "clip": 1.0},
    "learning": {
        "model": "femnist_cnn",
        "dataset": {"kind": "synthetic", "shape": [1, 28, 28], "classes": 62, "train": 200, "test": 10},
        "epochs": 1,
        "batch_size": 1,
    },
    "protocols": ["lightsecagg"],
}
"""The paper's size, at a drop-out rate of 30 %."""

MANY: dict[str, Any] = {
    **PAPER,
    "payload": "shadow",
    "rounds": 10,
    "dropout": {"rate": 0.1},
    "population": {**PAPER["population"], "users": 10_000},
    "privacy": {"T": 1000, "D": 2000},
    "quantization": {"levels": 1024, "clip": 1.0},
    "learning": {
        "model": "logistic",
        "dataset": {"kind": "synthetic", "shape": [1, 8, 8], "train": 10_000, "test": 10},
        "epochs": 1,
    },
    "protocols": ["secagg_plus", "lightsecagg"],
}
"""Ten thousand users, counted and not executed."""

RUN = """
import json, re, resource, sys, time
import simfl
wall = time.perf_counter()
result = simfl.run(json.load(sys.stdin))
exact = {m.aggregate_exact for measured in result.measured.values() for m in measured}
done = all(r.reason is None for rounds in result.rounds.values() for r in rounds)
used = resource.getrusage(resource.RUSAGE_SELF)  # whose peak memory is at least that of the parent
peak_kb = int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
print(json.dumps({"cpu_s": used.ru_utime + used.ru_stime, "wall_s": time.perf_counter() - wall, "done": done,
                  "peak_gb": peak_kb * 1024 / 1e9, "exact": exact == {True}}))
"""


def fresh(scenario: dict[str, Any]) -> dict[str, Any]:
    """Run a scenario in a separate process; return its cost."""
    command = [sys.executable, "-c", RUN]
    out = subprocess.run(
        command, input=json.dumps(scenario), capture_output=True, text=True, check=True, cwd=ROOT
    )
    took: dict[str, Any] = json.loads(out.stdout)
    assert took["done"]
    assert took["exact"] or scenario.get("payload") == "shadow"
    return took


def report(found: Any, group: str, name: str, took: dict[str, Any], cpu_s: float, peak_gb: float) -> None:
    """A run's CPU seconds and peak memory, and their goals."""
    found(group, name, (took["cpu_s"], "CPU s", cpu_s), (took["peak_gb"], "GB", peak_gb))


@pytest.mark.parametrize("q", ["2^32 - 5", "2147352577"])
@pytest.mark.parametrize(("limit_gb", "peak_gb"), [(1.5, 1.5), (9.0, 6.5)], ids=["streamed", "held"])
def test_a_round_of_lightsecagg(q: str, limit_gb: float, peak_gb: float, found: Any) -> None:
    scenario = {**PAPER, "memory_limit_gb": limit_gb, "workers": 1}
    if q == "2147352577":
        scenario["field"] = {"q": "ntt"}
        scenario["quantization"] = {"levels": 65536, "clip": 0.5}
    name = f"{'streamed' if limit_gb < 2 else 'held'}, q = {q}"
    report(found, "LightSecAgg, U = 140", name, fresh(scenario), 10, peak_gb)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_a_round_of_secagg(rate: float, found: Any) -> None:
    scenario = {
        **PAPER,
        "protocols": ["secagg"],
        "workers": 1,
        "dropout": {"rate": rate},
        "memory_limit_gb": 4.0,
    }
    scenario["privacy"] = {"T": 99, "D": 100, "U": 100}
    report(found, "SecAgg", f"p = {rate}", fresh(scenario), 45, 2.5)


@pytest.mark.parametrize(("protocol", "gain"), [("lightsecagg", 1.5), ("secagg", 1.3)])
def test_two_workers_against_one(protocol: str, gain: float, found: Any) -> None:
    """Wall time: on a machine with two cores that does nothing else."""
    scenario = {
        **PAPER,
        "protocols": [protocol],
        "memory_limit_gb": 1.5 if protocol == "lightsecagg" else 4.0,
    }
    one, two = (fresh({**scenario, "workers": workers})["wall_s"] for workers in (1, 2))
    found("two workers", f"{protocol}, one / two", (one / two, "x, at least", gain))


def test_counting_the_whole_study(found: Any) -> None:
    took = [
        fresh(
            {
                **PAPER,
                "payload": "shadow",
                "protocols": [protocol],
                "dropout": {"rate": rate},
                "privacy": privacy,
            }
        )
        for protocol in ("secagg", "secagg_plus", "lightsecagg")
        for rate, privacy in STUDY.items()
    ]
    total = {"cpu_s": sum(t["cpu_s"] for t in took), "peak_gb": max(t["peak_gb"] for t in took)}
    report(found, "counted only", "the study, nine processes", total, 10, 2)


STUDY = {
    0.1: {"T": 100, "D": 60, "U": 140},
    0.3: {"T": 100, "D": 60, "U": 140},
    0.495: {"T": 100, "D": 99, "U": 101},
}


def test_counting_ten_thousand_users(found: Any) -> None:
    report(found, "counted only", "10,000 users, 10 rounds, two protocols", fresh(MANY), 60, 2)


def test_counting_a_complete_graph(found: Any) -> None:
    users = {**MANY["population"], "users": 1000}
    scenario = {
        **MANY,
        "population": users,
        "protocols": ["secagg"],
        "rounds": 1,
        "privacy": {"T": 500, "D": 200},
    }
    report(found, "counted only", "SecAgg, 1,000 users, one round", fresh(scenario), 30, 2)
