"""A client of a Dask cluster that is there, or of one that is started on this machine."""

import glob
import logging
import os
import signal
import threading
import time
import warnings
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from simfl.errors import BadInput

SCHEDULER_ANSWERS_S = 10  # or is taken to be absent
NO_WORKER_S = 20  # before it is told of: one that is restarted is back by then
LOOK_EVERY_S = 1.0
TRIES = 3

log = logging.getLogger(__name__)  # Python prints a warning to stderr where nobody set up anything else


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
            client = stack.enter_context(Client(cluster, timeout=SCHEDULER_ANSWERS_S))
        for worker, threads in client.nthreads().items():
            if threads > 1:
                raise BadInput(f"Dask worker {worker} has {threads} threads: start it with --nthreads 1")
        stack.enter_context(telling_without_workers(option, client))
        yield client


@contextmanager
def telling_without_workers(option: str, client: Any) -> Iterator[None]:
    """Log a message whenever no worker has been there for a while. What was asked for waits for one: where
    workers are jobs in a queue, hours may pass until then."""
    over = threading.Event()
    address = client.scheduler.address

    def look() -> None:
        seen_s, told = time.monotonic(), False
        # A scheduler that goes away ends the run, which says so.
        with suppress(Exception, CancelledError):
            while not over.wait(LOOK_EVERY_S):
                if client.nthreads():
                    seen_s, told = time.monotonic(), False
                elif not told and time.monotonic() - seen_s >= NO_WORKER_S:
                    waits = f"the scheduler at {address} has had no worker for {NO_WORKER_S} s"
                    log.warning("simfl: %s: %s: waiting for one to join; Ctrl-C ends it", option, waits)
                    told = True

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join(LOOK_EVERY_S)  # while the client is still open


def dask_setup(worker: Any) -> None:
    """Leave interrupts to the parent, and give each worker a GPU of its own as far as there are some; Dask
    calls this by its name in each worker that is started here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable()  # all that matters comes back
    gpus = len(glob.glob("/dev/nvidia[0-9]*"))
    if gpus and isinstance(worker.name, int):
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", str(worker.name % gpus))


@contextmanager
def reachable(option: str, address: str | None) -> Iterator[None]:
    """Raise BadInput, with the first line of the reason, if a cluster cannot be used."""
    try:
        yield
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        where = "a cluster on this machine" if address is None else address
        raise BadInput(f"{option}: {where} cannot be used: {str(error).splitlines()[0]}") from None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Dask's own accounts of what a command says in one message."""
    from distributed.utils import silence_logging_cmgr

    with warnings.catch_warnings(), silence_logging_cmgr(logging.CRITICAL + 1):
        warnings.filterwarnings("ignore", category=UserWarning, module=r"distributed\.")
        yield
