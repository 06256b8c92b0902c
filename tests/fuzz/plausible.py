"""Scenarios that are valid, or nearly, and unlike each other: where runs go wrong that no bad value explains.

Times come in three orders: of the server's overhead for a message, of the links' latency, of a round. So
deadlines pass while the server is busy, users leave amid a message, and all of it at the same instant.
"""

from __future__ import annotations

from random import Random
from typing import Any

from simfl.protocols.registry import PROTOCOLS
from simfl.world.dropout import POINTS
from tests.fuzz import worlds

Tree = dict[str, Any]

ROUNDS = ("fedavg", "secagg", "secagg_plus", "ccesa", "lightsecagg")
BUFFERED = ("fedbuff", "lightsecagg_async")


def scenario(rng: Random) -> Tree:
    """A scenario of 1 to 12 users."""
    N, asynchronous = rng.randint(1, 12), rng.random() < 0.5
    overhead = rng.choice((0.0, 0.0002, 0.0002, 0.01, 0.5, 2.0))
    latency = rng.choice((0.0, 0.001, 0.04, 1.0))
    tree: Tree = {
        "seed": rng.randrange(2**32),
        "clock": "modelled",
        "payload": "shadow",
        "rounds": rng.randint(1, 8 if asynchronous else 4),
        "population": {
            "users": N,
            "devices": worlds.devices(rng),
            "availability": worlds.availability(rng, N, not asynchronous),
        },
        "network": {
            "users": worlds.link(rng, latency),
            "server": {"uplink_mbps": worlds.rate(rng), "downlink_mbps": worlds.rate(rng)},
            "peers": rng.choice(("relayed", "direct")),
            "overhead_s": overhead,
        },
        "detect": rng.choice(("timeout", {"disconnect": rng.choice((0.0, 0.01, 0.5, 5.0))})),
        "deadlines": _deadlines(rng, overhead, latency, asynchronous),
        "dropout": worlds.dropout(rng, N, asynchronous),
        "overlap": rng.random() < 0.6,
        "learning": {
            "dataset": {"kind": "synthetic", "shape": [4], "classes": 2, "train": 20 * N + 20, "test": 10},
            "epochs": rng.choice((1, 1, 5, 100)),
            "evaluate_every": rng.randint(1, 3),
            "partition": rng.choice(
                ("iid", "iid", {"dirichlet": 0.5}, {"shards": 2}, {"quantity_skew": 1.0})
            ),
            "clip": rng.choice(("none", {"norm": 1.0}, {"value": 0.1})),
        },
        "quantization": {"levels": 256, "clip": 1.0},
    }
    if rng.random() < 0.3:
        tree["server"] = {"cores": rng.randint(1, 4), "slowdown": rng.choice((0.5, 1.0, 100.0))}
    if rng.random() < 0.2:
        tree["horizon_s"] = rng.choice((0.001, 0.5, 5.0, 100.0))
    cohort, wanted = (N, N) if asynchronous else _select(rng, N, tree)
    U = rng.randint(min(2, wanted), wanted)
    T = rng.randrange(U)
    tree["privacy"] = {"T": T, "D": rng.randint(cohort - wanted, cohort - U), "U": U}
    if asynchronous:
        tree["buffer"] = _buffer(rng, N)
    if rng.random() < 0.7:
        worlds.enrich(tree, rng)
    names = rng.sample(BUFFERED if asynchronous else ROUNDS, rng.randint(1, 2))
    tree["protocols"] = {name: _settings(name, rng, cohort, T, U) for name in names}
    if isinstance(tree["dropout"], dict) and "script" in tree["dropout"]:
        tree["dropout"]["script"] = [loss for loss in tree["dropout"]["script"] if _happens(loss, tree)]
    return tree


def _happens(loss: Tree, tree: Tree) -> bool:
    """Tell whether a run can have a scripted loss; a scenario with another one is refused."""
    reached = POINTS[: 1 + max(POINTS.index(PROTOCOLS[name].points[-1]) for name in tree["protocols"])]
    return ("buffer" in tree or loss["round"] < tree["rounds"]) and loss["at"] in reached


def _deadlines(rng: Random, overhead: float, latency: float, asynchronous: bool) -> Tree:
    made: Tree = {}
    for name in ("advertise", "shares", "upload", "recovery"):
        step = rng.choice((overhead or 0.001, latency or 0.001, 1.0))
        after = round(step * rng.choice((0.5, 1, 2, 3, 4, 10, 50, 1000)), 6)
        made[name] = after
        if not asynchronous and rng.random() < 0.25:
            grace = rng.choice((0.0, overhead, latency, 1.0))
            fraction = rng.choice((0.0, 0.5, 0.8, 1.0))
            made[name] = {"kind": "quorum", "fraction": fraction, "grace_s": grace, "after_s": after}
    return made


def _select(rng: Random, N: int, tree: Tree) -> tuple[int, int]:
    """Who takes part in a round; returns the most users that it can hold, and the uploads that it wants."""
    kind = rng.choice(("all", "all", "random", "weighted_random", "partition", "bernoulli", "multi_round"))
    users = rng.randint(1, N)
    if kind == "bernoulli":
        tree["selection"] = {"bernoulli": rng.choice((0.3, 0.8, 1.0))}
    elif kind == "multi_round":
        T = rng.choice([d for d in range(1, N + 1) if N % d == 0])
        users = T * rng.randint(1, N // T)
        tree["selection"] = {"kind": kind, "users": users, "T": T, "fair": rng.random() < 0.5}
    elif kind != "all":
        users = rng.choice([d for d in range(1, N + 1) if N % d == 0]) if kind == "partition" else users
        tree["selection"] = {"kind": kind, "users": users}
        if kind in ("random", "weighted_random") and rng.random() < 0.5:
            more = rng.randint(users, N)
            tree["selection"]["over"] = int(more / users * 1e6) / 1e6  # users x over is rounded up
            tree["deadlines"]["upload"] = worlds.scale(rng)
            return more, users
    return (N, N) if kind in ("all", "bernoulli") else (users, users)


def _buffer(rng: Random, N: int) -> Tree:
    buffer: Tree = {"K": rng.randint(1, max(1, N // 2 + 1)), "staleness_bound": rng.choice((0, 1, 3, 10))}
    if rng.random() < 0.7:
        buffer["concurrency"] = rng.randint(1, N + 2)
    buffer["return_s"] = worlds.scale(rng)
    return buffer


def _settings(name: str, rng: Random, cohort: int, T: int, U: int) -> Tree:
    t = min(max(2, T + 1), max(2, U))
    if name == "secagg":
        return {"t": t, "lost_masks": rng.choice(("needed", "all"))}
    if name == "secagg_plus":
        k = rng.randint(2, max(2, cohort - 1))
        return {"k": k, "t": rng.randint(2, k + 1)}
    if name == "ccesa":
        threshold = {"majority": True} if rng.random() < 0.5 else {"t": t}
        return {"p": rng.choice((0.1, 0.5, 0.9, 1.0)), **threshold}
    if name in BUFFERED:
        return {"staleness": rng.choice(("constant", {"polynomial": 0.5}))}
    return {}
