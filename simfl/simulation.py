"""Run a scenario: `await simulate(...)` in a coroutine, `run(...)` anywhere else."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simfl.engine.clock import drive
from simfl.engine.session import Session
from simfl.engine.virtual import NS
from simfl.engine.warm import warm
from simfl.engine.world import Outcome
from simfl.learning.threads import one_thread
from simfl.protocols.ops import Ops
from simfl.result import Kept, Measurement, Result
from simfl.scenario.build import Study, build, clocks
from simfl.scenario.load import load
from simfl.scenario.schema import Measured, Scenario
from simfl.trace import seldom_collecting


@dataclass(frozen=True)
class Progress:
    """Where a run is."""

    protocol: str
    rounds_done: int
    rounds: int
    virtual_s: float
    accuracy: float | None


async def simulate(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    overrides: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> Result:
    """Simulate a scenario's protocols, one after the other, on one world.

    Args:
        scenario: a YAML file, a mapping of the same shape, or a validated scenario.
        overrides: values by dotted key, such as {"population.users": 50}.
        out: a folder for the run's files; a run that is interrupted or fails leaves there what
            it finished.
        watch: told the progress, a few times a second.

    Raises:
        ScenarioError: the scenario is bad; names each value, its bound and its place.
        DataPlaneError, ReplayError: the run failed.
        asyncio.CancelledError: it was interrupted.
    """
    loaded = load(scenario, overrides)
    study = build(loaded)
    clock_of = clocks(study)
    result = Result(loaded)
    with one_thread(loaded.payload == "real"), seldom_collecting():
        try:
            for name in loaded.protocols:
                session = study.session(name, clock_of(name))
                if isinstance(loaded.clock, Measured):
                    cohort, trainer = loaded.of(name).cohort, study.trainers[name]
                    warm(session.machines.kind, session.machines.params, cohort, trainer)
                elif loaded.payload == "real":
                    result.training[name] = str(study.trainers[name].choice)
                await _one(study, name, session, result, watch)
        except BaseException:
            result.interrupted = True
            raise
        finally:
            if out is not None and any(result.measured.values()):
                result.write(Path(out))
    return result


def run(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    overrides: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> Result:
    """`simulate` for who has no event loop."""
    return asyncio.run(simulate(scenario, overrides, out, watch))


def _finite(value: float) -> float | None:
    """A model that diverged has no loss: JSON knows no NaN."""
    return float(value) if math.isfinite(value) else None


async def _kept(ops: Ops, outcome: Outcome) -> Kept:
    """What a round's record holds, as arrays."""
    record = outcome.record
    assert record is not None
    mean = (await ops.get(record.mean))[0].astype(np.float32)
    deltas = [(await ops.get(handle))[0] for handle in record.updates]
    return Kept(outcome.round, mean, np.array(record.members), np.array(record.weights), np.stack(deltas))


async def _one(
    study: Study, name: str, session: Session, result: Result, watch: Callable[[Progress], None] | None
) -> None:
    ops = session.ops
    result.traces[name] = session.trace
    measured = result.measured[name] = []
    updates = result.updates[name] = []
    latest: float | None = None

    def tell() -> None:
        if watch is not None:
            rounds = study.scenario.rounds
            watch(Progress(name, len(measured), rounds, session.env.now / NS, latest))

    async def publish(outcome: Outcome) -> None:
        nonlocal latest
        audit = await ops.get(outcome.audit) if outcome.audit else None
        evaluation = await ops.get(outcome.evaluation) if outcome.evaluation else None
        differ, wrapped, clipped = (None, None, None) if audit is None else map(int, audit[0])
        accuracy, loss = (None, None) if evaluation is None else map(_finite, evaluation[0])
        latest = latest if accuracy is None else accuracy
        exact = None if differ is None else differ == 0
        counts = [await ops.get(handle) for handle in outcome.clipped]
        shortened = None if not counts or None in counts else sum(map(bool, counts))
        measured.append(Measurement(exact, wrapped, clipped, accuracy, loss, outcome.rate, shortened))
        if outcome.record is not None:
            updates.append(await _kept(ops, outcome))
        tell()

    try:
        await drive(session, publish, tell)
    finally:
        ops.close()
