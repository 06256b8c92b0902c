"""Weights & Biases, offline: a run for each protocol, in one group; `wandb sync` uploads them."""

import os
from pathlib import Path
from typing import Any

from simfl.connect.trackers import facts, values
from simfl.errors import need
from simfl.runs.results.round_summary import RoundSummary
from simfl.runs.results.summary import Summary
from simfl.scenario.schema import Scenario


class WandB:
    """Writes `folder/wandb/offline-run-...`; step is the round, and `end_s` the virtual time.

    Its service is a separate process, which ends with this one.

    >>> WandB("runs/curves").project  # for `callbacks` of a run
    'simfl'
    """

    def __init__(self, folder: str | Path, project: str = "simfl") -> None:
        # Before the import, which reads it.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        need("WandB", "wandb", "wandb")
        self.folder, self.project = Path(folder), project
        self._runs: dict[str, Any] = {}
        self._facts: dict[str, Any] = {}

    def on_start(self, scenario: Scenario) -> None:
        self._facts = facts(scenario)

    def on_round(self, protocol: str, row: RoundSummary) -> None:
        if protocol not in self._runs:
            self._runs[protocol] = self._begin(protocol)
        self._runs[protocol].log(values(row), step=row.index)

    def _begin(self, protocol: str) -> Any:
        import wandb

        # If it does not exist, wandb writes to a temporary folder instead.
        self.folder.mkdir(parents=True, exist_ok=True)
        # This machine's load, name, code and terminal are not part of a simulated run.
        settings = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, save_code=False,
            x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True,
        )  # fmt: skip
        return wandb.init(
            mode="offline", dir=str(self.folder), project=self.project, group=self._facts["scenario"],
            name=protocol, config={**self._facts, "protocol": protocol}, settings=settings,
            reinit="create_new",
        )  # fmt: skip

    def on_end(self, summary: Summary) -> None:
        for protocol, run in self._runs.items():
            run.summary["per_aggregate_s"] = summary.protocols[protocol].mean.per_aggregate_s
            # 1 marks an interrupted run as failed.
            run.finish(exit_code=int(summary.interrupted))
