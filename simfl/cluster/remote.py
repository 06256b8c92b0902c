"""Trainings and evaluations on a Dask cluster, asked for by `dataplane.remote.RemoteOps`.

Weights go to the cluster once a version. They are the result of a task, as trainings are: the scheduler
makes again whatever a worker takes with it when it dies.
"""

import re
import weakref
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np

from simfl.cluster import client as clients
from simfl.cluster import worker
from simfl.cluster.client import TRIES
from simfl.cluster.worker import Order
from simfl.dataplane.remote import Place, Values
from simfl.errors import BadInput, ClusterFailed, need, reason
from simfl.folder.identity import code_version, scenario_key
from simfl.learning.trainer import Trainer
from simfl.scenario.schema import Scenario
from simfl.scenario.world import Measured

Done = Callable[[Values | BaseException], None]
OPTION = "--cluster"


class Cluster:
    """A run's connection to its workers. ways: each entry's way of training there, and clients at a time."""

    def __init__(self, client: Any, order: Order) -> None:
        self.client, self.order, self.scheduler = client, order, client.scheduler.address
        self._versions: dict[int, Any] = {}
        self.ways = self._prepare()
        self.workers = len(client.nthreads())

    def _prepare(self) -> dict[str, tuple[str, int]]:
        """Let all workers make their trainers. BadInput, which names the worker, if one cannot."""
        answers = self.client.run(worker.prepare, self.order, on_error="return")
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

    def places(self, entry: str, trainer: Trainer) -> list[Place]:
        """Return the kernels of an entry that are done on the cluster."""
        return [
            (trainer.training, Trainings(self, entry, trainer)),
            (trainer.evaluate, Evaluations(self, entry)),
        ]

    def held(self, weights: Any) -> Any:
        """Return the cluster's copy of weights, sent when they are first asked for."""
        key = id(weights)
        if key not in self._versions:
            copy = self.client.submit(worker.hold, weights, key=f"weights-{uuid4().hex}")
            self._versions[key] = copy
            weakref.finalize(weights, self._versions.pop, key, None)
            self.client.replicate([copy])  # else all is queued at the one worker that has them
        return self._versions[key]

    def submit(self, function: Any, entry: str, args: Sequence[Any], done: Callable[[Any], None]) -> None:
        """Let a worker call a function; `done` is called with its result or error, in another thread."""
        key = f"{function.__name__}-{uuid4().hex}"
        call = (function, self.order, entry, *args)
        future = self.client.submit(worker.attempt, *call, key=key, retries=TRIES - 1)
        future.add_done_callback(lambda future: done(self._outcome(future)))

    def _outcome(self, future: Any) -> Any:
        try:
            if future.status == "finished":
                result = future.result()
                return ClusterFailed(result) if isinstance(result, str) else result
            if future.status == "error":
                return self._told(future.exception())
        except (OSError, CancelledError):
            pass
        return ClusterFailed(f"the scheduler at {self.scheduler} went away")

    def _told(self, error: BaseException) -> BaseException:
        from distributed.scheduler import KilledWorker

        if isinstance(error, KilledWorker):
            tries, last = error.allowed_failures + 1, error.last_worker.address
            return ClusterFailed(f"{tries} workers died while they did this, the last at {last}")
        return error


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
    def hands(self) -> int:
        return self.cluster.workers

    def send(self, calls: Sequence[tuple[Any, ...]], done: Done) -> None:
        weights, users, seeds, rounds, steps = zip(*calls, strict=True)
        versions = list({id(version): version for version in weights}.values())
        place = {id(version): k for k, version in enumerate(versions)}
        which = [place[id(version)] for version in weights]
        copies = list(map(self.cluster.held, versions))
        args = (copies, which, users, list(map(bytes, seeds)), rounds, steps)
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
    hands = 1

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


def check(address: str, scenario: Scenario) -> tuple[int, str | None]:
    """Return the processes to start here, or the address of a scheduler. BadInput for what cannot be."""
    if isinstance(scenario.clock, Measured):
        why = "training elsewhere takes no CPU time of this machine: use --clock modelled, or recorded:DIR"
        raise BadInput(f"{OPTION} goes without the measured clock: {why}")
    if scenario.payload == "shadow":
        raise BadInput(f"{OPTION}: payload shadow trains nobody")
    if address.startswith("ray://"):
        raise BadInput(f"{OPTION}: ray:// is not supported: start a Dask cluster and use dask://HOST:PORT")
    if local := re.fullmatch(r"local:([1-9]\d{0,3})", address):
        return int(local[1]), None
    if re.fullmatch(r"dask://[^/\s]+:\d+", address):
        return 0, address.replace("dask", "tcp", 1)
    raise BadInput(f"{OPTION}: {address!r:.80} must be dask://HOST:PORT, or local:N for N processes here")


@contextmanager
def connected(address: str, scenario: Scenario) -> Iterator[Cluster]:
    """Yield a scenario's cluster, all of whose workers can train it. BadInput if there is none."""
    jobs, scheduler = check(address, scenario)
    need(OPTION, "distributed", "dask")
    code = code_version()
    order = Order(code, scenario_key(scenario, code), scenario.model_dump(mode="json"))
    with ExitStack() as stack:
        stack.enter_context(clients.quiet())
        client = stack.enter_context(clients.connected(OPTION, jobs, scheduler))
        with clients.reachable(OPTION, scheduler):
            client.wait_for_workers(1, timeout=clients.SCHEDULER_ANSWERS_S)
        yield Cluster(client, order)
