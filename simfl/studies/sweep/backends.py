"""Where a sweep's cells are run: in processes of this machine, or on a Dask or Ray cluster; through joblib.

Cells are handed over one at a time and come back as they are done. A worker has one thread: what a cell
needs runs in line (`learning.threads`), and more would only take turns.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Literal, assert_never

from joblib import Parallel, cpu_count, parallel_config

from simfl.errors import BadInput

Backend = Literal["loky", "dask", "ray"]

MODULES = {"dask": "distributed", "ray": "ray"}


PATIENCE_S = 10
"""How long a Dask scheduler may take to answer."""


def need(backend: Backend) -> None:
    """See to it that a backend is installed.

    Raises:
        BadInput: it is not; names the extra.
    """
    try:
        import_module(MODULES.get(backend, "joblib"))
    except ImportError:
        raise BadInput(f"--backend {backend} is not installed: pip install 'simfl[{backend}]'") from None


def cores() -> int:
    """Cores of this machine that this process may use."""
    return int(cpu_count())


@contextmanager
def workers(backend: Backend, jobs: int, address: str | None = None) -> Iterator[Callable[..., Any]]:
    """A joblib `Parallel` that gives results as they come.

    jobs: how many at a time, where the workers are made here. address: of a Dask scheduler or a Ray cluster;
    without one a cluster of `jobs` workers is started on this machine.

    Raises:
        BadInput: the cluster does not answer, or has workers with several threads.
    """
    how: dict[str, Any] = {"return_as": "generator_unordered", "batch_size": 1, "pre_dispatch": "2*n_jobs"}
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        match backend:
            case "loky":
                stack.enter_context(parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1))
                if jobs > 1:
                    how["initializer"] = partial(_belong_to, os.getpid())
            case "dask":
                client = stack.enter_context(_dask(jobs, address))
                stack.enter_context(parallel_config("dask", client=client))
            case "ray":
                many = stack.enter_context(_ray(jobs, address))
                stack.enter_context(parallel_config("ray", n_jobs=many))
            case _:
                assert_never(backend)
        yield stack.enter_context(Parallel(**how))


@contextmanager
def _quiet() -> Iterator[None]:
    """joblib's warnings are its own affair: that it renews a worker, or cancels what was interrupted."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"joblib\.")
        yield


def _belong_to(parent: int) -> None:
    """In a worker: leave interrupts to the parent, and end when it does, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=follow, args=(parent,), daemon=True).start()


def follow(parent: int) -> None:
    """End this process once it has another parent."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


@contextmanager
def _dask(jobs: int, address: str | None) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with _reachable("dask", address):
        if address is None:
            how = {"dashboard_address": None, "silence_logs": logging.ERROR, "preload": [__name__]}
            cluster = LocalCluster(n_workers=jobs, threads_per_worker=1, **how)
            client = Client(cluster)
        else:
            cluster, client = None, Client(address, timeout=PATIENCE_S)
    try:
        threads = client.nthreads()
        several = next((worker for worker, count in threads.items() if count > 1), None)
        if several is not None:
            raise BadInput(
                f"Dask worker {several} has {threads[several]} threads: start it with --nthreads 1"
            )
        yield client
    finally:
        client.close()
        if cluster is not None:
            cluster.close()


def dask_setup(worker: Any) -> None:
    """Called by Dask in each worker that is started here: an interrupt is for the parent to tell of."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("distributed").setLevel(logging.ERROR)


@contextmanager
def _ray(jobs: int, address: str | None) -> Iterator[int]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell its makers of each use
    import ray
    from joblib import register_parallel_backend
    from ray.util.joblib.ray_backend import RayBackend

    def streaming(**how: Any) -> Any:
        backend = RayBackend(**how)
        # Its base class, a pool of plain processes, says no; Ray's pool calls back as each task is done,
        # which is all that a generator of results needs.
        backend.supports_return_generator = True
        return backend

    register_parallel_backend("ray", streaming)
    local = {"num_cpus": jobs, "include_dashboard": False} if address is None else {"address": address}
    with _reachable("ray", address):
        ray.init(**local, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield jobs if address is None else int(ray.cluster_resources().get("CPU", 1))
    finally:
        ray.shutdown()


@contextmanager
def _reachable(backend: str, address: str | None) -> Iterator[None]:
    try:
        yield
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        where = "a cluster on this machine" if address is None else address
        raise BadInput(f"--backend {backend}: {where} cannot be used: {str(error).splitlines()[0]}") from None
