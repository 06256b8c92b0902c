"""The part that runs on a worker: trainers made from the resolved scenario, kept from call to call.

Invariant: a worker computes nothing for a run whose code, scenario or files it does not share. No code
comes over the wire: the scenario is plain values, and what it names is read from the same paths.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfl.learning.trainer import Trainer, one_thread
from simfl.random_streams import Streams
from simfl.runs.folder.identity import code_version, scenario_key
from simfl.runs.learners import make_trainers
from simfl.scenario.load import load
from simfl.world import profiles

MAX_KEPT = 2  # scenarios: a worker may serve two runs at once, and must not keep the data of all before


class Order(NamedTuple):
    """The run that a call belongs to. scenario: the resolved one, as plain values; key: its identity with the
    files that it names."""

    code: str
    key: str
    scenario: dict[str, Any]


class Refusal(Exception):
    """A worker that must not take part, and why."""


_trainers: dict[str, dict[str, Trainer]] = {}
_limits = ExitStack()  # one thread, from the first trainer on


def trainers(order: Order) -> dict[str, Trainer]:
    """Return a run's trainers by entry. Refusal if this worker has other code or files."""
    if code_version() != order.code:
        raise Refusal(f"has simfl {code_version()}, not {order.code}")
    if order.key not in _trainers:
        try:
            scenario = load(order.scenario)
            streams, profile = Streams(scenario.seed), profiles.load(scenario.profile)
            made = make_trainers(scenario, streams, profile, lambda stage: None)
        except (ValueError, OSError) as error:
            raise Refusal(f"cannot train this scenario: {error}") from None
        if scenario_key(scenario, order.code) != order.key:
            raise Refusal("has files of other content under the names in the scenario")
        if not _trainers:
            _limits.enter_context(one_thread(any(trainer.by_torch for trainer in made.values())))
        while len(_trainers) >= MAX_KEPT:
            del _trainers[next(iter(_trainers))]
        _trainers[order.key] = made
    return _trainers[order.key]


def prepare(order: Order) -> dict[str, tuple[str, int]] | str:
    """Return how each entry is trained here, and the clients at a time; or why not at all."""
    try:
        made = trainers(order)
    except Refusal as refusal:
        return str(refusal)
    return {name: (str(trainer.way), trainer.way.chunk) for name, trainer in made.items()}


def train(
    order: Order,
    entry: str,
    which: Sequence[int],
    users: Sequence[int],
    seeds: Sequence[bytes],
    rounds: Sequence[int],
    steps: Sequence[int | None],
    *versions: NDArray[np.float32],
) -> Any:
    """Return the updates of clients, [K, d]; client k begins with versions[which[k]]."""
    return trainers(order)[entry].train([versions[k] for k in which], users, seeds, rounds, steps)


def evaluate(order: Order, entry: str, weights: NDArray[np.float32]) -> Any:
    """Return accuracy and loss of weights, [1, 2]."""
    return trainers(order)[entry].evaluate(weights)


def attempt(name: str, function: Any, order: Order, *args: Any) -> Any:
    """Return function(order, ...), or a text: the worker that refuses, and why. No other try would help."""
    try:
        return function(order, *args)
    except Refusal as refusal:
        return f"worker {name} {refusal}"
