"""Trackers of experiments: adapters for three that people use, as callbacks of a run.

All write files of this machine, and send
nothing anywhere.
"""

from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from simfl.runs.callbacks import Tracker
from simfl.runs.results.frames import flat
from simfl.runs.results.round_summary import RoundSummary
from simfl.scenario.schema import Scenario

VALUES = (
    "total_s", "end_s", "span_s_offline", "span_s_training", "span_s_upload", "span_s_recovery", "survivors",
    "bytes_up", "bytes_down", "aggregate_exact", "accuracy", "loss", "energy_j",
)  # fmt: skip
"""The values of a round that adapters write, by their names in `to_pandas("rounds")`."""

Name = Literal["tensorboard", "wandb", "mlflow"]
ADAPTERS: dict[Name, str] = {"tensorboard": "TensorBoard", "wandb": "WandB", "mlflow": "MLflow"}


def tracker(name: Name, folder: Path) -> Tracker:
    """Return an adapter by its name.

    Args:
        name: The adapter's.
        folder: The run's. MLflow's store is `mlflow.db` in the working directory, where `mlflow ui` looks.

    Raises:
        BadInput: Its library is not installed; the message names the extra.
    """
    adapter = getattr(import_module(f"simfl.connect.trackers.{name}"), ADAPTERS[name])
    made: Tracker = (
        adapter() if name == "mlflow" else adapter(folder / name if name == "tensorboard" else folder)
    )
    return made


def values(row: RoundSummary) -> dict[str, float]:
    """Return the `VALUES` of a round that there are."""
    found = flat(row)
    return {key: float(found[key]) for key in VALUES if found.get(key) is not None}


def facts(scenario: Scenario) -> dict[str, Any]:
    """Return what tells runs apart in a tracker's table."""
    return {
        "scenario": scenario.name,
        "seed": scenario.seed,
        "clock": scenario.clock.kind,
        "payload": scenario.payload,
        "users": scenario.population.users,
        "rounds": scenario.rounds,
    }
