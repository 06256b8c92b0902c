"""Run a scenario: `await simulate(...)` in a coroutine, `run(...)` anywhere else."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simfl.dataplane.ops import Ops
from simfl.engine.checkpoints import Checkpoints, Past
from simfl.engine.driver import drive
from simfl.engine.session import Session
from simfl.engine.setup import ClosedRound
from simfl.engine.warm_up import warm
from simfl.errors import BadInput, RunFailed
from simfl.experiment.build import Experiment, build, make_clocks
from simfl.folder import unfinished
from simfl.folder.result import Kept, Result
from simfl.folder.saving import EVERY_S, Point, Saver
from simfl.folder.unfinished import Unfinished
from simfl.learning.threads import one_thread
from simfl.python_files import blamed
from simfl.results.summary import Measurement
from simfl.results.trace import Trace, seldom_collecting
from simfl.scenario.load import load
from simfl.scenario.schema import Scenario
from simfl.scenario.world import Measured
from simfl.virtual_time import NS


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
    resume: bool = False,
    save_every_s: float = EVERY_S,
) -> Result:
    """Simulate a scenario's protocols, one after the other, on one world.

    Args:
        scenario: a YAML file, a mapping of the same shape, or a validated scenario.
        overrides: values by dotted key, such as {"population.users": 50}.
        out: a folder for the run's files, which is tried and locked before anything runs. Finished rounds are
            saved there as the run goes on, so that whatever ends it leaves them.
        watch: told the progress, a few times a second.
        resume: go on with the unfinished run in `out`, which must be of this scenario and this code.
        save_every_s: seconds between two times that finished rounds are saved; more if saving takes long.

    Raises:
        BadInput: the scenario is bad (a ScenarioError, which names each value, its bound and its place), or
            the folder cannot be written, is in use, or holds nothing that can be resumed.
        DataPlaneError, ReplayError: the run failed.
        asyncio.CancelledError: it was interrupted.
    """
    loaded = load(scenario, overrides)
    if resume and out is None:
        raise BadInput("resume: out must be the folder of an unfinished run")
    folder: AbstractContextManager[Unfinished | None] = nullcontext()
    if out is not None:
        folder = unfinished.locked(Path(out)) if resume else unfinished.taken(Path(out))
    with folder as own:
        if own is not None and resume:
            own.check(loaded)
        with blamed(BadInput):
            study = build(loaded)
        saver = None if own is None else Saver(own, save_every_s)
        with blamed(RunFailed), one_thread(loaded.payload == "real"), seldom_collecting():
            return await _all(study, saver, resume, watch)


def run(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    overrides: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    watch: Callable[[Progress], None] | None = None,
    resume: bool = False,
    save_every_s: float = EVERY_S,
) -> Result:
    """`simulate` where there is no event loop."""
    return asyncio.run(simulate(scenario, overrides, out, watch, resume, save_every_s))


async def _all(
    study: Experiment, saver: Saver | None, resume: bool, watch: Callable[[Progress], None] | None
) -> Result:
    loaded, clock_of = study.scenario, make_clocks(study)
    result = Result(loaded)
    if saver is not None:
        result = saver.resume(loaded) if resume else saver.begin(loaded)
    try:
        for name in loaded.protocols:
            if saver is not None and saver.is_done(name):
                continue
            past = Past() if saver is None else saver.past(name)
            trainer = study.trainers[name]
            clock = clock_of(name)
            if saver is not None and clock.timing and past.rounds:
                clock = saver.clock(name, result.traces[name])
            session = study.session(name, clock)
            if isinstance(loaded.clock, Measured):
                warm(session.machines.kind, session.machines.params, loaded.of(name).cohort, trainer)
            elif loaded.payload == "real":
                result.training[name] = str(trainer.way)
            if saver is not None:
                session.checkpoints = Checkpoints(session, past)
                saver.start(name, session.trace, result.training.get(name))
            await _one(study, name, session, result, saver, past, watch)
    except BaseException as error:
        result.interrupted = True
        if saver is not None:
            saver.stop(result, error)
        raise
    if saver is not None:
        saver.finish(result)
    return result


def _finite(value: float) -> float | None:
    """A model that diverged has no loss: JSON knows no NaN."""
    return float(value) if math.isfinite(value) else None


async def _kept(ops: Ops, outcome: ClosedRound) -> Kept:
    """What a round's record holds, as arrays."""
    record = outcome.record
    assert record is not None
    mean = (await ops.get(record.mean))[0].astype(np.float32)
    deltas = [(await ops.get(handle))[0] for handle in record.updates]
    return Kept(outcome.round, mean, np.array(record.members), np.array(record.weights), np.stack(deltas))


async def _point(ops: Ops, outcome: ClosedRound) -> Point:
    """What a session that is resumed after this round needs, as arrays."""
    standing = outcome.standing
    assert standing is not None
    models = {version: await ops.get(model) for version, model in standing.models.items()}
    moments = None if standing.moments is None else await ops.get(standing.moments)
    return Point(standing.rows, models, moments, standing.running)


async def _one(
    study: Experiment,
    name: str,
    session: Session,
    result: Result,
    saver: Saver | None,
    past: Past,
    watch: Callable[[Progress], None] | None,
) -> None:
    ops = session.ops
    if past.rounds == 0:
        result.traces[name] = session.trace
    measured = result.measured.setdefault(name, [])
    updates = result.updates.setdefault(name, [])
    latest = next((m.accuracy for m in reversed(measured) if m.accuracy is not None), None)

    def tell() -> None:
        if watch is not None:
            rounds = study.scenario.rounds
            watch(Progress(name, len(measured), rounds, session.env.now / NS, latest))

    async def publish(outcome: ClosedRound) -> None:
        nonlocal latest
        if outcome.round < past.rounds:
            if outcome.round == past.rounds - 1:
                _held_to(result.traces[name], session)
                result.traces[name] = session.trace
            return
        audit = await ops.get(outcome.audit) if outcome.audit else None
        evaluation = await ops.get(outcome.evaluation) if outcome.evaluation else None
        differ, wrapped, clipped = (None, None, None) if audit is None else map(int, audit[0])
        accuracy, loss = (None, None) if evaluation is None else map(_finite, evaluation[0])
        latest = latest if accuracy is None else accuracy
        exact = None if differ is None else differ == 0
        counts = [await ops.get(handle) for handle in outcome.clipped]
        shortened = None if not counts or None in counts else sum(map(bool, counts))
        measured.append(Measurement(exact, wrapped, clipped, accuracy, loss, outcome.rate, shortened))
        kept = None if outcome.record is None else await _kept(ops, outcome)
        if kept is not None:
            updates.append(kept)
        if saver is not None:
            saver.add(measured[-1], kept, await _point(ops, outcome))
        tell()

    try:
        with blamed(RunFailed):
            await drive(session, publish, tell)
        if saver is not None:
            saver.end()
    finally:
        ops.close()


def _held_to(before: Trace, session: Session) -> None:
    """A resumed session must have come where the interrupted one was.

    Raises:
        RunFailed: its trace is another.
    """
    rows = session.trace
    if rows[: len(before)] != before:
        pairs = enumerate(zip(rows, before, strict=False))
        k = next((k for k, (now, then) in pairs if now != then), len(rows))
        raise RunFailed(f"the resumed run differs from the interrupted one: {session.machines.name}, row {k}")
