"""MLflow: a run for each protocol, in an experiment of the scenario's name.

A metric's step is the round, and its timestamp the virtual time in milliseconds.
"""

import os
from typing import Any

from simfl.connect.trackers import facts, values
from simfl.errors import need
from simfl.runs.results.round_summary import RoundSummary
from simfl.runs.results.summary import Summary
from simfl.scenario.schema import Scenario


class MLflow:
    """Writes to a local store, which `mlflow ui` shows.

    MLflow's telemetry is turned off for this process, unless the environment sets it.

    Args:
        uri: Another store, such as `sqlite:////data/all.db`.

    >>> import tempfile
    >>> from simfl import run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     over = {"rounds": 1, "payload": "shadow"}
    ...     run("scenarios/tutorial.yaml", over, callbacks=[MLflow(f"sqlite:///{folder}/all.db")])
    Result(tutorial, fedavg, secagg, lightsecagg)
    """

    def __init__(self, uri: str = "sqlite:///mlflow.db") -> None:
        # Before the import, which reads it.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        need("MLflow", "mlflow.tracking", "mlflow")
        if uri.startswith("sqlite"):  # mlflow-skinny does not depend on these
            need("MLflow", "sqlalchemy", "mlflow")
            need("MLflow", "alembic", "mlflow")
        from mlflow.tracking import MlflowClient

        self._client: Any = MlflowClient(uri)
        self._runs: dict[str, str] = {}
        self._facts: dict[str, Any] = {}

    def on_start(self, scenario: Scenario) -> None:
        self._facts = facts(scenario)
        # MLflow refuses a second experiment of one name.
        existing = self._client.get_experiment_by_name(scenario.name)
        name = scenario.name
        self._experiment = existing.experiment_id if existing else self._client.create_experiment(name)

    def on_round(self, protocol: str, row: RoundSummary) -> None:
        from mlflow.entities import Metric

        # With its first round, so that a protocol that never finished one leaves no empty run.
        if protocol not in self._runs:
            tags = {key: str(value) for key, value in self._facts.items()} | {"protocol": protocol}
            run = self._client.create_run(self._experiment, run_name=protocol, tags=tags)
            self._runs[protocol] = run.info.run_id
        at_ms = round(row.end_s * 1000)
        metrics = [Metric(key, value, at_ms, row.index) for key, value in values(row).items()]
        self._client.log_batch(self._runs[protocol], metrics=metrics)

    def on_end(self, summary: Summary) -> None:
        for protocol, run in self._runs.items():
            seconds = summary.protocols[protocol].mean.per_aggregate_s
            if seconds is not None:
                self._client.log_metric(run, "per_aggregate_s", seconds)
            # A run that is not ended would show as running for ever.
            self._client.set_terminated(run, "KILLED" if summary.interrupted else "FINISHED")
