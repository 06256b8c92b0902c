"""Trainings and evaluations on a Dask or Ray cluster, asked for by `dataplane.remote.RemoteOps`.

Weights go to the cluster once a version.
"""

import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from simfl.connect import dask_engine, ray_engine, worker
from simfl.connect.engine import Engine
from simfl.connect.worker import Order
from simfl.dataplane.remote import Placement, Values
from simfl.errors import BadInput, ClusterFailed, reason
from simfl.learning.trainer import Trainer
from simfl.runs.clusters import OPTION
from simfl.runs.folder.identity import code_version, scenario_key
from simfl.scenario.schema import Scenario
from simfl.scenario.world import Measured

Done = Callable[[Values | BaseException], None]


class Cluster:
    """A run's connection to its workers. ways: each entry's way of training there, and clients at a time."""

    def __init__(self, engine: Engine, order: Order) -> None:
        self.engine, self.order = engine, order
        self._versions: dict[int, Any] = {}
        self.ways = self._prepare()
        self.workers = engine.workers()

    def _prepare(self) -> dict[str, tuple[str, int]]:
        """Let the workers make their trainers. BadInput, which names the worker, if one cannot."""
        answers = self.engine.ask(worker.prepare, self.order)
        for address, answer in answers.items():
            if isinstance(answer, BaseException):
                answer = f"cannot run simfl: {type(answer).__name__}: {reason(answer)}"
            if isinstance(answer, str):
                raise BadInput(f"{OPTION}: worker {address} {answer}")
        ways = {}
        for name in next(iter(answers.values())):
            each = {answer[name]: None for answer in answers.values()}
            ways[name] = "; ".join(way for way, _ in each), max(chunk for _, chunk in each)
        return ways

    def places(self, entry: str, trainer: Trainer) -> list[Placement]:
        """Return the kernels of an entry that are done on the cluster."""
        return [
            (trainer.training, Trainings(self, entry, trainer)),
            (trainer.evaluate, Evaluations(self, entry)),
        ]

    def held(self, weights: Any) -> Any:
        """Return the cluster's copy of weights, sent when they are first asked for."""
        key = id(weights)
        if key not in self._versions:
            self._versions[key] = self.engine.hold(weights)
            weakref.finalize(weights, self._versions.pop, key, None)
        return self._versions[key]

    def submit(self, function: Any, entry: str, args: Sequence[Any], done: Callable[[Any], None]) -> None:
        """Let a worker call a function; `done` is called with its result or error, in another thread."""

        def received(result: Any) -> None:
            done(ClusterFailed(result) if isinstance(result, str) else result)

        self.engine.submit(function, self.order, entry, *args, done=received)


@dataclass(frozen=True)
class Trainings:
    """`Training` on a cluster."""

    cluster: Cluster
    entry: str
    trainer: Trainer

    @property
    def chunk(self) -> int:
        return self.cluster.ways[self.entry][1]

    @property
    def parallel_units(self) -> int:
        return self.cluster.workers

    def send(self, calls: Sequence[tuple[Any, ...]], done: Done) -> None:
        weights, users, seeds, rounds, steps = zip(*calls, strict=True)
        versions = list({id(version): version for version in weights}.values())
        place = {id(version): k for k, version in enumerate(versions)}
        which = [place[id(version)] for version in weights]
        copies = map(self.cluster.held, versions)
        args = (which, users, list(map(bytes, seeds)), rounds, steps, *copies)
        shape, each = (len(calls), self.trainer.d), self.trainer.training.each

        def received(result: Any) -> None:
            done(checked(result, shape, np.float32, lambda updates: each(updates, users, rounds)))

        self.cluster.submit(worker.train, self.entry, args, received)


@dataclass(frozen=True)
class Evaluations:
    """`Trainer.evaluate` on a cluster."""

    cluster: Cluster
    entry: str
    chunk = 1
    parallel_units = 1

    def send(self, calls: Sequence[tuple[Any, ...]], done: Done) -> None:
        [(weights,)] = calls

        def received(result: Any) -> None:
            done(checked(result, (1, 2), np.float64, lambda one: [one]))

        self.cluster.submit(worker.evaluate, self.entry, (self.cluster.held(weights),), received)


def checked(result: Any, shape: tuple[int, ...], dtype: Any, split: Callable[[Any], Values]) -> Any:
    """Return the values in an array that a worker sent, or its error; or that it is no such array."""
    if isinstance(result, BaseException):
        return result
    if isinstance(result, np.ndarray) and result.shape == shape and result.dtype == dtype:
        return split(result)
    got = f"{result.dtype} {result.shape}" if isinstance(result, np.ndarray) else type(result).__name__
    return ClusterFailed(f"a worker returned {got}, not {np.dtype(dtype)} {shape}")


def check(address: str, scenario: Scenario) -> tuple[str, str]:
    """Return an address's kind, and the processes to start here or HOST:PORT. BadInput for what cannot be."""
    if isinstance(scenario.clock, Measured):
        why = "training elsewhere takes no CPU time of this machine: use --clock modelled, or recorded:DIR"
        raise BadInput(f"{OPTION} goes without the measured clock: {why}")
    if scenario.payload == "shadow":
        raise BadInput(f"{OPTION}: payload shadow trains nobody")
    if local := re.fullmatch(r"local:([1-9]\d{0,3})", address):
        return "local", local[1]
    if there := re.fullmatch(r"(dask|ray)://([^/\s]+:\d+)", address):
        return there[1], there[2]
    must = "dask://HOST:PORT, ray://HOST:PORT, or local:N for N processes here"
    raise BadInput(f"{OPTION}: {address!r:.80} must be {must}")


def opened(address: str, scenario: Scenario) -> AbstractContextManager[Engine]:
    """Return the engine at an address."""
    kind, where = check(address, scenario)
    if kind == "ray":
        return ray_engine.opened(OPTION, where, gpu=scenario.learning.device == "cuda")
    jobs, scheduler = (int(where), None) if kind == "local" else (0, where)
    return dask_engine.opened(OPTION, jobs, scheduler)


@contextmanager
def connected(address: str, scenario: Scenario) -> Iterator[Cluster]:
    """Yield a scenario's cluster, all of whose workers can train it. BadInput if there is none."""
    with opened(address, scenario) as engine:
        code = code_version()
        order = Order(code, scenario_key(scenario, code), scenario.model_dump(mode="json"))
        yield Cluster(engine, order)
