"""One scenario under several seeds, side by side in processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from joblib import Parallel, delayed

from simfl.scenario.schema import Scenario
from simfl.simulate import run


def over_seeds(
    scenario: Scenario, seeds: Sequence[int], jobs: int = 1, watch: Callable[[int], None] | None = None
) -> dict[int, dict[str, Any]]:
    """Seed -> the run's summary (see `Result.summary`). watch: told how many are done.

    Raises what `simulate` raises.
    """
    done: dict[int, dict[str, Any]] = {}
    runs = Parallel(n_jobs=jobs, return_as="generator_unordered")(
        delayed(_summary)(scenario.model_copy(update={"seed": seed})) for seed in seeds
    )
    for seed, summary in runs:
        done[seed] = summary
        if watch is not None:
            watch(len(done))
    return {seed: done[seed] for seed in seeds}


def _summary(scenario: Scenario) -> tuple[int, dict[str, Any]]:
    return scenario.seed, run(scenario).summary
