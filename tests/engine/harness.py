"""Small worlds for the engine's tests, and how to look at what came of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import simfl
from simfl.engine.environment import Environment
from simfl.engine.network import VirtualNetwork
from simfl.runs.folder.result import Result
from simfl.trace import rows
from simfl.world.availability import FOR_EVER, OnlineTimes
from simfl.world.links import LinkState

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))
PLAIN = Path(__file__).parent / "plain.yaml"
FILES = {
    "SHA256SUMS",
    "breakdown.csv",
    "metrics.jsonl",
    "participation.csv",
    "resolved.yaml",
    "summary.json",
    "trace.jsonl",
}
"""What a run leaves in its folder."""
SYNC_PROTOCOLS = ("fedavg", "secagg", "lightsecagg")
ASYNC_PROTOCOLS = ("fedbuff", "lightsecagg_async")

SYNC: dict[str, Any] = {
    "seed": 5,
    "clock": "modelled",
    "profile": str(PLAIN),
    "rounds": 1,
    "population": {"users": 3, "devices": {"slowdown": 10.0, "cores": 2}},
    "network": {
        "users": {"uplink_mbps": 8.0, "downlink_mbps": 16.0, "latency_s": 0.01},
        "server": {"uplink_mbps": 1000.0, "downlink_mbps": 1000.0},
        "overhead_s": 0.001,
    },
    "detect": "timeout",
    "deadlines": {"advertise": 2.0, "shares": 2.0, "upload": 5.0, "recovery": 2.0},
    "privacy": {"T": 1, "D": 1, "U": 2},
    "quantization": {"levels": 65536, "clip": 4.0},
    "learning": {"epochs": 1, "batch_size": 50, "lr": 0.5},
    "protocols": ["fedavg"],
}
"""3 users, each on its own link: 1 byte a microsecond up, 2 down; 10 ms away; 1 ms a message received."""

SIX = {
    "population.users": 6,
    "privacy": {"T": 2, "D": 2, "U": 4},
    "protocols": list(SYNC_PROTOCOLS),
}
"""Room for two losses."""

WAITS: dict[str, Any] = {"deadlines.consistency": 2.0, "deadlines.reveal": 2.0}
"""Waits of protocols that ask for signatures, or for revealed keys."""

ASYNC: dict[str, Any] = {
    **{key: value for key, value in SYNC.items() if key != "privacy"},
    "rounds": 8,
    "population": {
        "users": 8,
        "devices": {"slowdown": {"kind": "lognormal", "median": 20.0, "sigma": 1.0}, "cores": 2},
    },
    "deadlines": {"advertise": 2.0, "upload": 1.0, "recovery": 1.0},
    "buffer": {"K": 3, "staleness_bound": 4, "concurrency": 5, "return_s": 0.2},
    "privacy": {"T": 2, "D": 3, "U": 4},
    "protocols": list(ASYNC_PROTOCOLS),
}


def sessions(on_s: float, off_s: float) -> dict[str, Any]:
    """Users who come and go, with these mean times."""
    return {"kind": "sessions", "on_s": {"exponential": on_s}, "off_s": {"exponential": off_s}}


SESSIONS = sessions(2.0, 0.2)


def online(folder: Path, times_s: Mapping[int, list[tuple[float, float]]], users: int) -> dict[str, Any]:
    """A trace of when users are online (from, to); those who are not named are so all the time."""
    lines = ["user,from_s,to_s"]
    for user in range(users):
        lines += [f"{user},{start},{end}" for start, end in times_s.get(user, [(0.0, 1e6)])]
    path = folder / "online.csv"
    path.write_text("\n".join(lines))
    return {"population.availability": {"trace": str(path)}}


@dataclass(eq=False)
class Carried:
    """A transfer that tells what becomes of it."""

    size_bytes: int
    on_sent: Callable[[], object]
    on_arrived: Callable[[], object]
    on_aborted: Callable[[int], object]
    latency_ns: int = 0
    relayed: bool = False


def uniform(
    env: Environment, up_mbps: float, down_mbps: float, latency_s: float, server_mbps: float, **more: Any
) -> VirtualNetwork:
    """A network of equal users whose links never change, as the server's own does not."""
    state = LinkState(round(up_mbps * 1e6), round(down_mbps * 1e6), latency_s, FOR_EVER)
    server_bps = round(server_mbps * 1e6)
    return VirtualNetwork(
        env, lambda user, now: state, lambda now: (server_bps, server_bps, FOR_EVER), **more
    )


def days(everyone: OnlineTimes, user: int) -> Iterator[tuple[int, bool]]:
    """(nanoseconds that a state lasts, whether a user is online), one after the other; the last one stays."""
    now = until = 0
    while until < FOR_EVER:
        online, until = everyone.at(user, now)
        yield (until - now) * (until < FOR_EVER), online
        now = until


def run(overrides: Mapping[str, Any] | None = None, base: Mapping[str, Any] = SYNC, **more: Any) -> Result:
    """A small world with values by dotted key; `more` goes to `simfl.run`."""
    return simfl.run(base, overrides, **more)


def script(*losses: tuple[int, int, str, str], delay_s: float = 1.0) -> dict[str, Any]:
    """Losses as (user, round, at, when)."""
    listed = []
    for user, index, at, when in losses:
        delay = {"delay_s": delay_s} if when == "delay" else {}
        listed.append({"user": user, "round": index, "at": at, "when": when, **delay})
    return {"kind": "script", "losses": listed}


def lines(result: Result) -> list[str]:
    """The lines of `trace.jsonl`."""
    return list(rows.lines(result.traces))


def of(trace: rows.Trace, kind: type[Any], /, **values: Any) -> list[Any]:
    """The rows of one kind with these values."""
    return [
        row
        for row in trace
        if isinstance(row, kind) and all(getattr(row, name) == value for name, value in values.items())
    ]


@cache
def edges() -> Result:
    """The shipped drop-out scenario; it takes seconds, so it is run once."""
    return simfl.run(ROOT / "scenarios/dropout_edges.yaml")
