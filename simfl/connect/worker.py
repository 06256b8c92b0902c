"""The part that runs on a worker: trainers of the resolved scenario, which are kept for further calls.

Invariant: a worker computes only for runs with its own code, and with the same scenario and files. No code is
sent: the scenario is plain values, and the files that it names are read from the same paths.
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

MAX_KEPT = 2
"""Scenarios whose trainers are kept: a worker may serve two runs at once, and must free earlier data."""


class RunSpec(NamedTuple):
    """The run that a call belongs to."""

    code: str
    """Version of simfl."""
    key: str
    """Digest of the scenario and of the files that it names."""
    scenario: dict[str, Any]
    """The resolved scenario, as plain values."""


class Refusal(Exception):
    """The reason why a worker must not take part."""


def refusal(code: str) -> str | None:
    """Return the reason why this worker must not work for simfl of a version; None if it has the same."""
    return None if code_version() == code else f"has simfl {code_version()}, not {code}"


_trainers: dict[str, dict[str, Trainer]] = {}
"""Trainers by key of the run and entry, the earliest run first."""
_limits = ExitStack()
"""The limit of one thread, which is set with the first trainer."""


def trainers(spec: RunSpec) -> dict[str, Trainer]:
    """Return a run's trainers by entry.

    Raises:
        Refusal: This worker has other code or files, or cannot train the scenario.
    """
    # The version is compared at each call, since a worker may join, or be restarted with other code, during
    # the run.
    if reason := refusal(spec.code):
        raise Refusal(reason)
    if spec.key not in _trainers:
        try:
            # Loaded as any scenario is, since plain values from elsewhere are checked anew.
            scenario = load(spec.scenario)
            streams, profile = Streams(scenario.seed), profiles.load(scenario.profile)
            by_entry = make_trainers(scenario, streams, profile, lambda stage: None)
        except (ValueError, OSError) as error:
            raise Refusal(f"cannot train this scenario: {error}") from None
        # After the trainers are made, which read the files: data that are missing have a clearer message than
        # a wrong digest.
        if scenario_key(scenario, spec.code) != spec.key:
            raise Refusal("has files of other content under the names in the scenario")
        # Once a process: the limit holds for everything after.
        if not _trainers:
            _limits.enter_context(one_thread(any(trainer.by_torch for trainer in by_entry.values())))
        # Dictionaries keep their order: the earliest run goes.
        while len(_trainers) >= MAX_KEPT:
            del _trainers[next(iter(_trainers))]
        _trainers[spec.key] = by_entry
    return _trainers[spec.key]


def prepare(spec: RunSpec) -> dict[str, tuple[str, int]] | str:
    """Return by entry its training method and the clients in a batch; or the reason of a refusal."""
    try:
        by_entry = trainers(spec)
    except Refusal as refusal:
        return str(refusal)
    return {name: (trainer.described, trainer.chunk) for name, trainer in by_entry.items()}


def train(
    spec: RunSpec,
    entry: str,
    which: Sequence[int],
    users: Sequence[int],
    seeds: Sequence[bytes],
    rounds: Sequence[int],
    steps: Sequence[int | None],
    *versions: NDArray[np.float32],
) -> Any:
    """Return the updates of K clients, [K, d].

    Args:
        spec: The run.
        entry: Name of the entry.
        which: For each client, the index of its version.
        users: Each client's user.
        seeds: Each client's seed.
        rounds: Each client's round.
        steps: Each client's number of minibatches; None for all.
        versions: Weights.
    """
    return trainers(spec)[entry].train([versions[k] for k in which], users, seeds, rounds, steps)


def evaluate(spec: RunSpec, entry: str, weights: NDArray[np.float32]) -> Any:
    """Return accuracy and loss of weights, [1, 2]."""
    return trainers(spec)[entry].evaluate(weights)


def attempt(name: str, function: Any, spec: RunSpec, *args: Any) -> Any:
    """Return function(spec, ...); for a refusal a text with the worker and the reason.

    A refusal is no error: the cluster would repeat the call, without a chance of success.
    """
    try:
        return function(spec, *args)
    except Refusal as refusal:
        return f"worker {name} {refusal}"
