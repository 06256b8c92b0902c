"""Adapters for three experiment trackers, as callbacks of a run.

Invariant: an adapter writes files on this machine, and sends nothing over a network.
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
"""Values of a round that adapters write, by their names in `to_pandas("rounds")`."""

Name = Literal["tensorboard", "wandb", "mlflow"]
ADAPTERS: dict[Name, str] = {"tensorboard": "TensorBoard", "wandb": "WandB", "mlflow": "MLflow"}


def tracker(name: Name, folder: Path) -> Tracker:
    """Return an adapter by its name.

    Args:
        name: Name of the adapter.
        folder: The run's folder. MLflow's store is `mlflow.db` in the working directory, where `mlflow ui`
            looks.

    Raises:
        BadInput: Its library is not installed; the message names the extra.
    """
    # Imported by name, so that no library of another adapter is needed.
    adapter = getattr(import_module(f"simfl.connect.trackers.{name}"), ADAPTERS[name])
    folders = {"tensorboard": [folder / name], "wandb": [folder], "mlflow": []}
    instance: Tracker = adapter(*folders[name])
    return instance


def values(row: RoundSummary) -> dict[str, float]:
    """Return the `VALUES` that a round has."""
    columns = flat(row)
    # Trackers hold numbers only: True is 1.0, and a value that a round lacks is no point of its curve.
    return {key: float(columns[key]) for key in VALUES if columns.get(key) is not None}


def facts(scenario: Scenario) -> dict[str, Any]:
    """Return the settings that distinguish runs in a tracker's table."""
    return {
        "scenario": scenario.name,
        "seed": scenario.seed,
        "clock": scenario.clock.kind,
        "payload": scenario.payload,
        "users": scenario.population.users,
        "rounds": scenario.rounds,
    }
