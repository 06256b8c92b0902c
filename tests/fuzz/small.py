"""A scenario made small, so that a run of it takes a fraction of a second: few users, rounds and samples.

What takes part in virtual time stays as it is: devices, links, deadlines, losses, presence, the protocols.
"""

from __future__ import annotations

from typing import Any

from simfl.protocols.registry import PROTOCOLS
from simfl.scenario.schema import Scenario
from simfl.scenario.user_classes import settings_of
from simfl.world.energy import Plugged

USERS, ROUNDS, AGGREGATIONS = 12, 4, 8

CHANGES = 5_000
"""So many times users may come and go, about, before a run ends at a horizon."""


def small(s: Scenario) -> dict[str, Any]:
    """A scenario as a mapping, with at most so many users; shadow, by the modelled clock."""
    tree: dict[str, Any] = s.model_dump(mode="json", exclude_unset=True)
    rounds = ROUNDS if s.buffer is None else AGGREGATIONS
    tree |= {"clock": "modelled", "payload": "shadow", "rounds": min(s.rounds, rounds)}
    for key in ("record_updates", "workers", "targets"):
        tree.pop(key, None)
    tree["learning"] = {**tree.get("learning", {}), "model": "logistic", "dataset": _dataset(s)}
    if tree["learning"].get("partition", {}).get("kind") == "natural":
        del tree["learning"]["partition"]
    for name, entry in tree["protocols"].items():
        entry["protocol"] = s.protocols[name].protocol
        if entry.get("partition") and entry["partition"]["kind"] == "natural":
            del entry["partition"]
    if s.population.users > USERS:
        _fewer_users(s, tree)
    if "losses" in tree.get("dropout", {}):
        asked = range(tree["rounds"]) if s.buffer is None else range(2**31)
        losses = (loss for loss in tree["dropout"]["losses"] if loss.get("round", 0) in asked)
        tree["dropout"]["losses"] = [loss for loss in losses if loss["user"] < USERS]
    lasting_s = _shortest_s(s)
    longest_s = max((deadline.after_s for deadline in s.deadlines.given.values()), default=0.0)
    if lasting_s is not None and (s.buffer is None or longest_s > MANY * lasting_s):
        horizon_s = lasting_s * CHANGES / min(s.population.users, USERS)
        tree["horizon_s"] = min(horizon_s, s.horizon_s or horizon_s)
    return tree


MANY = 20
"""Presences in a deadline from which on a buffered run gets a horizon; otherwise it must end by itself."""


def _shortest_s(s: Scenario) -> float | None:
    """How long the shortest states of users and links last, about; None if for a round or for ever."""
    models: list[Any] = [s.network.server.varies, *s.network.outages]
    for own in settings_of(s).values():
        models += [own.availability, own.network.varies]
        if own.energy is not None and isinstance(own.energy.battery, Plugged):
            models.append(own.energy.battery.charging)
    models += [level for model in models for level in getattr(model, "levels", ())]
    found = [getattr(model, key) for model in models for key in ("slot_s", "window_s") if hasattr(model, key)]
    for model in models:
        drawn = [getattr(model, key, None) for key in ("on_s", "off_s", "every_s", "lasts_s", "dwell_s")]
        found += [spread.quantile(0.5) for spread in drawn if spread is not None]
    return min((seconds for seconds in found if seconds is not None), default=None)


def _dataset(s: Scenario) -> dict[str, Any]:
    shares = [learning.partition for learning in (s.of(name).learning for name in s.protocols)]
    each = max(max(getattr(p, "min_samples", 1), getattr(p, "per_user", 1)) for p in shares)
    common = max(getattr(p, "samples", 0) for p in shares)
    train = 10 * min(s.population.users, USERS) * min(each, 100) + min(common, 1000)
    return {"kind": "synthetic", "shape": [4], "classes": 2, "train": train, "test": 10}


def _fewer_users(s: Scenario, tree: dict[str, Any]) -> None:
    """12 users, and what is counted in users in proportion."""
    part = USERS / s.population.users

    def fewer(count: int, least: int = 1) -> int:
        return max(least, round(count * part))

    tree["population"]["users"] = USERS
    if tree["population"].get("availability", {}).get("kind") == "trace":
        del tree["population"]["availability"]
    cohort = USERS
    for block in (tree, *tree["protocols"].values()):
        selection = block.get("selection")
        if selection and "users" in selection:
            batch = {"multi_round": 2, "partition": 6}.get(selection["kind"], 1)
            selection["users"] = cohort = 6
            if "T" in selection:
                selection["T"] = batch
    if s.buffer:
        tree["buffer"]["K"] = min(s.buffer.K, 3)
        if s.buffer.concurrency:
            tree["buffer"]["concurrency"] = fewer(s.buffer.concurrency, 3)
    if s.privacy:
        tree["privacy"] = {"T": cohort // 3, "D": cohort // 3, "U": cohort // 2}
    for entry in tree["protocols"].values():
        for key in {"k", "t"} & set(entry):
            above_T = cohort // 3 + 1 if entry["protocol"] == "secagg" else 3
            entry[key] = 4 if key == "k" else above_T
        if PROTOCOLS[entry["protocol"]].model_with and cohort < 3:
            del entry["protocol"]
