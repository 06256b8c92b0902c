"""Workers of a Dask cluster that is there, or of one that is started on this machine."""

import asyncio
import glob
import logging
import os
import signal
import warnings
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

from simfl.connect import worker
from simfl.connect.engine import ANSWERS_S, TRIES, Engine, gone, reachable, telling_without_workers
from simfl.errors import BadInput, ClusterFailed, need


class DaskEngine:
    """`Engine` of a Dask client. Weights are the result of a task, as trainings are: the scheduler makes
    again whatever a worker takes with it when it dies."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.head = head_of(client)

    def workers(self) -> int:
        return len(self.client.nthreads())

    def ask(self, function: Any, *args: Any) -> dict[str, Any]:
        answers: dict[str, Any] = self.client.run(in_thread, function, *args, on_error="return")
        return answers

    def hold(self, weights: Any) -> Any:
        copy = self.client.submit(same, weights, key=f"weights-{uuid4().hex}")
        self.client.replicate([copy])  # else all is queued at the one worker that has them
        return copy

    def submit(self, function: Any, *args: Any, done: Callable[[Any], None]) -> None:
        key = f"{function.__name__}-{uuid4().hex}"
        future = self.client.submit(attempt, function, *args, key=key, retries=TRIES - 1)
        future.add_done_callback(lambda future: done(self._outcome(future)))

    def _outcome(self, future: Any) -> Any:
        try:
            if future.status == "finished":
                return future.result()
            if future.status == "error":
                return self._told(future.exception())
        except (OSError, CancelledError):
            pass
        return ClusterFailed(gone(self.head))

    def _told(self, error: BaseException) -> BaseException:
        from distributed.scheduler import KilledWorker

        if isinstance(error, KilledWorker):
            tries, last = error.allowed_failures + 1, error.last_worker.address
            return ClusterFailed(f"{tries} workers died while they did this, the last at {last}")
        return error


def head_of(client: Any) -> str:
    return f"the scheduler at {client.scheduler.address}"


async def in_thread(function: Any, *args: Any) -> Any:
    """Call a function beside the worker's loop, which must go on answering its scheduler."""
    return await asyncio.to_thread(function, *args)


def same(weights: Any) -> Any:
    return weights


def attempt(function: Any, *args: Any) -> Any:
    from distributed import get_worker

    return worker.attempt(get_worker().address, function, *args)


@contextmanager
def opened(option: str, jobs: int, address: str | None) -> Iterator[Engine]:
    """Yield the workers of the scheduler at HOST:PORT, or `jobs` processes here. BadInput without any."""
    need(option, "distributed", "dask")
    address = address and f"tcp://{address}"
    with quiet(), connected(option, jobs, address) as client:
        with reachable(option, address):
            client.wait_for_workers(1, timeout=ANSWERS_S)
        yield DaskEngine(client)


@contextmanager
def connected(option: str, jobs: int, address: str | None) -> Iterator[Any]:
    """Yield a client of the scheduler at `address`, or of `jobs` processes here. option: named in messages.
    BadInput if it does not answer, or has several threads a worker."""
    import dask
    from distributed import Client, LocalCluster

    how = {"dashboard_address": None, "silence_logs": logging.ERROR, "preload": [__name__]}
    with ExitStack() as stack:
        with reachable(option, address):
            cluster: Any = address
            if address is None:
                stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": TRIES - 1}))
                cluster = stack.enter_context(LocalCluster(n_workers=jobs, threads_per_worker=1, **how))
            client = stack.enter_context(Client(cluster, timeout=ANSWERS_S))
        for name, threads in client.nthreads().items():
            if threads > 1:
                raise BadInput(f"Dask worker {name} has {threads} threads: start it with --nthreads 1")
        there = DaskEngine(client)
        stack.enter_context(telling_without_workers(option, there.head, there.workers))
        yield client


def dask_setup(worker: Any) -> None:
    """Leave interrupts to the parent, and give each worker a GPU of its own as far as there are some; Dask
    calls this by its name in each worker that is started here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable()  # all that matters comes back
    gpus = len(glob.glob("/dev/nvidia[0-9]*"))
    if gpus and isinstance(worker.name, int):
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", str(worker.name % gpus))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Dask's own accounts of what a command says in one message."""
    from distributed.utils import silence_logging_cmgr

    with warnings.catch_warnings(), silence_logging_cmgr(logging.CRITICAL + 1):
        warnings.filterwarnings("ignore", category=UserWarning, module=r"distributed\.")
        yield
