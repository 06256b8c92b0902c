"""Trackers of experiments: a callback of a run, and adapters for three that people use.

A tracker only reads: a run's trace is the same with and without it. All write files of this machine, and send
nothing anywhere.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

from simfl.results import metrics
from simfl.results.frames import flat
from simfl.results.round_summary import Measurement, RoundSummary
from simfl.results.summary import Summary
from simfl.results.trace import Trace
from simfl.scenario.schema import Scenario

EVERY_S = 2.0
SHARE = 0.02  # the most of a run that the reading of its trace may take; beyond, it is put off
VALUES = (
    "total_s", "end_s", "span_s_offline", "span_s_training", "span_s_upload", "span_s_recovery", "survivors",
    "bytes_up", "bytes_down", "aggregate_exact", "accuracy", "loss", "energy_j",
)  # fmt: skip
"""The values of a round that adapters write, by their names in `to_pandas("rounds")`."""

Name = Literal["tensorboard", "wandb", "mlflow"]
ADAPTERS: dict[Name, str] = {"tensorboard": "TensorBoard", "wandb": "WandB", "mlflow": "MLflow"}


class Tracker(Protocol):
    """A callback of a run: one of your own is any class with these three methods.

    >>> from simfl import run
    >>> class Printed:
    ...     def on_start(self, scenario): print(scenario.name)
    ...     def on_round(self, protocol, row): print(protocol, row.index, row.survivors)
    ...     def on_end(self, summary): print(list(summary.protocols))
    >>> over = {"rounds": 1, "payload": "shadow", "protocols": ["fedavg"]}
    >>> result = run("scenarios/tutorial.yaml", over, callbacks=[Printed()])
    tutorial
    fedavg 0 12
    ['fedavg']
    """

    def on_start(self, scenario: Scenario) -> None:
        """Take in the scenario, before its first protocol runs."""

    def on_round(self, protocol: str, row: RoundSummary) -> None:
        """Take in a finished round; those of a protocol come in order, each once the next has ended.
        Its later rows count in the summary only."""

    def on_end(self, summary: Summary) -> None:
        """Close everything: the run is over, finished or not (`summary.interrupted`)."""


def tracker(name: Name, folder: Path) -> Tracker:
    """Return an adapter by its name; BadInput names the extra where its library is not there. folder: of the
    run; MLflow's store is `mlflow.db` in the working directory, where `mlflow ui` looks for it."""
    adapter = getattr(import_module(f"simfl.trackers.{name}"), ADAPTERS[name])
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


class Telling:
    """Tells trackers of finished rounds, every few seconds: a round's values are a fold over the trace."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = trackers
        self._told: dict[str, int] = {}
        self._due_s = 0.0

    @contextmanager
    def of(self, scenario: Scenario, summarised: Callable[[], Summary]) -> Iterator[None]:
        """Tell of a run's start, and of its end however it ends."""
        for one in self.trackers:
            one.on_start(scenario)
        interrupted = True
        try:
            yield
            interrupted = False
        finally:
            if self.trackers:
                summary = summarised().model_copy(update={"interrupted": interrupted})
                for one in self.trackers:
                    one.on_end(summary)

    def tell(self, protocol: str, rows: Trace, measured: Sequence[Measurement], last: bool = False) -> None:
        """Tell of a protocol's rounds since the last time, if that is due or they are the last."""
        since_s = time.monotonic()
        if not self.trackers or (since_s < self._due_s and not last):
            return
        told = self._told.get(protocol, 0)
        finished = list(zip(metrics.rounds(rows), measured, strict=False))
        if not last:  # of the newest, answers that nobody waits for are still under way
            finished = finished[:-1]
        for r, m in finished[told:]:
            row = RoundSummary.of(r, m)
            for one in self.trackers:
                one.on_round(protocol, row)
        self._told[protocol] = len(finished)
        now_s = time.monotonic()
        self._due_s = now_s + max(EVERY_S, (now_s - since_s) / SHARE)
