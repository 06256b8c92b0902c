"""Worlds of a plausible scenario: users by class; links, outages, presence, losses and energy of any kind.

A world has each of what is optional in about one case of three, so that two of a kind often meet.
"""

from __future__ import annotations

from random import Random
from typing import Any

from simfl.world.dropout import POINTS

Tree = dict[str, Any]

WHEN = ("before_send", "mid_send", "after_send")
SHARES = ((1.0,), (0.5, 0.5), (0.1, 0.9), (0.25, 0.25, 0.5), (0.001, 0.999))
NAMES = ("4g", "home", "a.b")


def scale(rng: Random) -> float:
    """Seconds of some order."""
    return round(rng.choice((0.001, 0.01, 0.1, 1.0, 10.0)) * rng.uniform(0.5, 5.0), 6)


def often(rng: Random) -> bool:
    """One case of three."""
    return rng.random() < 0.35


def spread(rng: Random, size: float | None = None) -> Any:
    """A distribution of seconds, or of slowdowns; each has a mean."""
    size = scale(rng) if size is None else size
    return rng.choice((
        size,
        {"kind": "uniform", "low": size, "high": 5 * size},
        {"kind": "lognormal", "median": size, "sigma": rng.choice((0.0, 0.5, 2.0))},
        {"exponential": size},
        {"kind": "pareto", "least": size, "alpha": rng.choice((1.1, 3.0))},
        {"kind": "zipf", "s": 1.5, "ranks": rng.choice((1, 10, 60)), "unit": size},
        {"quantiles": [[0.0, size], [0.5, size], [1.0, 10 * size]]},
    ))  # fmt: skip


def column(rng: Random, name: str) -> Tree:
    """A column of the file of entries."""
    return {"file": "entries.csv", "column": name, "assign": rng.choice(("modulo", "draw"))}


def devices(rng: Random) -> Tree:
    """Devices of users."""
    return {
        "slowdown": column(rng, "slow") if rng.random() < 0.1 else spread(rng),
        "cores": rng.choice((1, 1, 2, 2, 8)),
        "training_noise": rng.choice((0.0, 0.0, 0.5)),
    }


def rate(rng: Random) -> float:
    """Mbit/s."""
    return rng.choice((0.001, 0.1, 1.0, 100.0, 1000.0, 1e5))


def link(rng: Random, latency: float) -> Tree:
    """Links of users."""
    made: Tree = {"latency_s": latency}
    if often(rng):
        made["latency_s"] = rng.choice((column(rng, "latency_s"), spread(rng)))
    if rng.random() < 0.4:
        made["preset"] = rng.choice(("4g", "lan320", "5g"))
    else:
        for key in ("uplink_mbps", "downlink_mbps"):
            own = rng.choice((column(rng, "rate"), spread(rng, rate(rng))))
            made[key] = own if often(rng) else rate(rng)
    if rng.random() < 0.3:
        made["jitter_s"] = spread(rng)
    if rng.random() < 0.3:
        made["tcp"] = {"slow_start": rng.choice(("fresh", "idle", "never")), "window": rng.choice((1, 10))}
    return {**made, "varies": varies(rng)} if often(rng) else made


def varies(rng: Random) -> Any:
    """A link that changes with time."""
    kind = rng.choice(("steady", "steps", "mahimahi", "markov", "markov", "daily", "daily"))
    assign = {"assign": rng.choice(("modulo", "draw"))}
    if kind == "steps":
        return {"kind": kind, "file": "rates.csv", **assign}
    if kind == "mahimahi":
        files = {"up_file": "link.up", "down_file": "link.down"}
        return {
            "kind": kind, **files, "window_s": rng.choice((0.001, 0.05, 1.0)),
            "offset": rng.choice(("none", "drawn")),
        }  # fmt: skip
    if kind == "markov":
        factors = rng.sample((0.0, 0.001, 0.5, 1.0, 3.0, 1000.0), rng.randint(2, 4))
        levels: list[Tree] = [{"factor": factor, "dwell_s": spread(rng)} for factor in factors]
        if often(rng):
            levels[0]["to"] = [0.0, *(1.0 for _ in factors[1:])]
        return {"kind": kind, "levels": levels}
    if kind == "daily":
        low, slot = rng.choice((0.0, 0.1, 1.0)), scale(rng)
        day = {
            "peak_s": scale(rng),
            "spread_s": rng.choice((0.0, 5.0)),
            "slot_s": slot,
            "period_s": 20 * slot,
        }
        return {"kind": kind, "low": low, "high": rng.choice((low, 1.0, 2.0)), **day}
    return kind


def outages(rng: Random, classes: list[str]) -> list[Tree]:
    """Outages, up to three."""
    made: list[Tree] = []
    for _ in range(rng.randint(1, 3)):
        of = rng.choice(("all", {"share": 0.5}, {"cells": 3}, *({"class": name} for name in classes)))
        one: Tree = {"of": of, "factor": rng.choice((0.0, 0.0, 0.1, 1.0)), "offline": rng.random() < 0.5}
        if of == {"cells": 3} or rng.random() < 0.6:
            one |= {"every_s": spread(rng), "lasts_s": spread(rng)}
        else:
            begin = rng.choice((0.0, scale(rng)))
            one |= {"from_s": begin, "to_s": begin + rng.choice((1e-9, scale(rng), 1e6))}
        if often(rng):
            one["name"] = rng.choice(("x", "y"))
        made.append(one)
    return made


def availability(rng: Random, N: int, in_rounds: bool = True) -> Any:
    """Times at which users are online. in_rounds: p may be drawn in each round."""
    kinds = ["always", "always", "slots", "sessions", "sessions", "diurnal", "trace", "wrapping", "by_slot"]
    kind = rng.choice([*kinds, *(["bernoulli", "by_round"] if in_rounds else [])])
    p = rng.choice((0.5, 0.9, 1.0, 0.0, [0.1, 0.9]))
    if kind == "bernoulli":
        return {"bernoulli": p}
    if kind == "slots":
        return {"kind": "bernoulli", "p": p, "slot_s": scale(rng)}
    if kind == "sessions":
        return {"kind": "sessions", "on_s": spread(rng), "off_s": spread(rng)}
    if kind == "diurnal":
        slot, low = scale(rng), rng.choice((0.0, 0.3))
        day = {"peak_s": scale(rng), "spread_s": scale(rng), "slot_s": slot, "period_s": slot * 20}
        return {"kind": "diurnal", "low": low, "high": rng.choice((low, 0.8, 1.0)), **day}
    if kind == "wrapping":
        return {"kind": "trace", "file": "plugged.csv", "assign": rng.choice(("modulo", "draw"))}
    if kind in ("by_round", "by_slot"):
        by = rng.choice(("more_data", "less_data", "least_label", "labels"))
        low = rng.choice((0.0, 0.5, 1.0))
        made = {"kind": "by_data", "by": by, "low": low, "high": 1.0, "power": rng.choice((0.5, 1.0, 30.0))}
        return made | ({"slot_s": scale(rng)} if kind == "by_slot" else {})
    return {"trace": "online.csv"} if kind == "trace" and N >= 6 else "always"


def dropout(rng: Random, N: int, asynchronous: bool) -> Any:
    """Losses within a round."""
    share = rng.choice((0.0, 0.1, 0.3, 0.999 if asynchronous else 1.0))  # a buffer that loses all is refused
    shares = share if asynchronous or rng.random() < 0.5 else [0.0, share]
    losses = [_loss(user, index, rng) for user in range(N) for index in range(3) if rng.random() < 0.15]
    groups = {"kind": "groups", "groups": rng.randint(1, N), "p": share, **_at_a_point(rng)}
    return rng.choice((
        "none",
        {"kind": "rate", "rate": shares, **_at_a_point(rng)},
        {"worst_case": shares},
        {"kind": "per_step", "q": share / 2, "when": rng.choice(WHEN)},
        *([] if asynchronous else [groups]),
        {"script": losses},
        {"script": losses},
    ))  # fmt: skip


def _at_a_point(rng: Random) -> Tree:
    at = rng.choice(POINTS)
    return {"at": at, "when": rng.choice((*WHEN, *(["not_counted"] if at == "upload" else [])))}


def _loss(user: int, index: int, rng: Random) -> Tree:
    loss: Tree = {"user": user, "round": index, **_at_a_point(rng)}
    return {**loss, "when": "delay", "delay_s": scale(rng)} if rng.random() < 0.3 else loss


def energy(rng: Random, N: int) -> Tree:
    """Energy of devices; batteries that last for some of a round, or for all of them."""
    made: Tree = {"cpu_w": _watts(rng)}
    if rng.random() < 0.7:
        keys = ("up_j_per_mb", "down_j_per_mb", "active_w", "tail_w", "idle_w")
        made["radio"] = {**{key: _watts(rng) for key in keys}, "tail_s": rng.choice((0.0, 0.01, 11.576))}
    if rng.random() < 0.6:
        base = rng.choice((0.0, 0.001, 0.5))
        back = rng.choice((0.01, 0.5, 1.0))
        made["battery"] = {
            "capacity_j": max(rng.choice((0.01, 1.0, 30.0, 69300.0)), 1.01 * base / back),
            "level": rng.choice((1.0, 1e-9, {"quantiles": [[0, 0.01], [1, 1]]}, {"exponential": 0.3})),
            "base_w": base,
            "charger_w": rng.choice((0.0, 0.01, 10.0, 1e3)),
            "charging": availability(rng, N, in_rounds=False),
            "comes_back_at": back,
        }
        if rng.choice((True, False, False)):
            made["battery"]["charging"] = {"kind": "sessions", "on_s": spread(rng), "off_s": spread(rng)}
    return made


def _watts(rng: Random) -> float:
    return rng.choice((0.0, 1e-6, 0.5, 2.0, 1000.0))


def enrich(tree: Tree, rng: Random) -> None:
    """Give a scenario's world some of what users can differ in."""
    population, network, N = tree["population"], tree["network"], tree["population"]["users"]
    if often(rng):
        population["energy"] = energy(rng, N)
        if often(rng) and tree.get("selection", {}).get("kind") == "random":
            users = tree["selection"]["users"]
            tree["selection"] = {"kind": "charged", "users": users, "least": rng.choice((0.0, 0.3, 1.0))}
    if often(rng):
        population["classes"] = {
            name: {"share": share, **_own(tree, rng)}
            for name, share in zip(NAMES, rng.choice(SHARES), strict=False)
        }
    if often(rng):
        network["server"]["varies"] = varies(rng)
    if often(rng):
        network["outages"] = outages(rng, list(population.get("classes", ())))
    if rng.random() < 0.1 and "tcp" not in network["users"]:
        network["tcp_start"] = "lv08"
    if rng.random() < 0.2:
        tree.setdefault("server", {})["energy"] = {"cpu_w": _watts(rng)}
    if often(rng):
        weight = rng.choice(("samples", *([] if "buffer" in tree else ["steps"]), "normalised"))
        tau = {"tau": rng.choice((1, 5, 1000))} if weight == "normalised" else {}
        within = rng.choice((1e-9, 1e-5, 1e-4, scale(rng), 1e3))
        tree["learning"]["partial"] = {"within_s": within, "weight": weight, **tau}


def _own(tree: Tree, rng: Random) -> Tree:
    """The world of one class."""
    N, asynchronous, own = tree["population"]["users"], "buffer" in tree, dict[str, Any]()
    if often(rng):
        own["network"] = link(rng, rng.choice((0.0, 0.04, 1.0)))
        if "tcp_start" in tree["network"]:
            own["network"].pop("tcp", None)
    if often(rng):
        own["devices"] = devices(rng)
    if often(rng):
        own["availability"] = availability(rng, N, not asynchronous)
    if often(rng):
        own["dropout"] = dropout(rng, N, asynchronous)
    if often(rng):
        own["energy"] = energy(rng, N)
    return own
