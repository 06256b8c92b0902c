"""Workers for a sweep's cells: processes of this machine, or a Dask or Ray cluster; through joblib.

A worker has one thread: a cell's work runs in line (`learning.trainer`), and more would only take turns.
"""

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

from simfl.connect.dask_engine import connected
from simfl.connect.engine import reachable
from simfl.errors import BadInput

Backend = Literal["loky", "dask", "ray"]
JOBS_PER_CORE = 2  # beyond, processes only take turns
MODULES = {"dask": "distributed", "ray": "ray"}


def need(backend: Backend) -> None:
    """Raise BadInput, which names the extra, if a backend is not installed."""
    try:
        import_module(MODULES.get(backend, "joblib"))
    except ImportError:
        raise BadInput(f"--backend {backend} is not installed: pip install 'simfl[{backend}]'") from None


def check_jobs(jobs: int) -> None:
    """Raise BadInput for more processes than this machine has work for."""
    most = JOBS_PER_CORE * cpu_count()
    if not 1 <= jobs <= most:
        raise BadInput(
            f"jobs={jobs} must be at least 1 and at most {most}, {JOBS_PER_CORE} for each core here"
        )


@contextmanager
def workers(
    backend: Backend, jobs: int, address: str | None = None, ordered: bool = False
) -> Iterator[Callable[..., Any]]:
    """Yield a joblib `Parallel` that gives results as they come, or `ordered` as the tasks.

    jobs: the workers that are made here. address: of a Dask scheduler or a Ray cluster; without one a cluster
    is started on this machine. BadInput if it does not answer, has several threads a worker, or would be
    started with more jobs than this machine has work for."""
    if address is None:
        check_jobs(jobs)
    results = "generator" if ordered else "generator_unordered"
    how: dict[str, Any] = {"return_as": results, "batch_size": 1, "pre_dispatch": "2*n_jobs"}
    with ExitStack() as stack:
        # joblib's warnings are its own affair: that it renews a worker, or cancels what was interrupted.
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", category=UserWarning, module=r"joblib\.")
        match backend:
            case "loky":
                stack.enter_context(parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1))
                if jobs > 1:
                    how["initializer"] = partial(_belong_to, os.getpid())
            case "dask":
                client = connected("--backend dask", jobs, address)
                stack.enter_context(parallel_config("dask", client=stack.enter_context(client)))
            case "ray":
                stack.enter_context(parallel_config("ray", n_jobs=stack.enter_context(_ray(jobs, address))))
            case _:
                assert_never(backend)
        yield stack.enter_context(Parallel(**how))


def _belong_to(parent: int) -> None:
    """Leave interrupts to the parent of a worker, and end when it does, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=follow, args=(parent,), daemon=True).start()


def follow(parent: int) -> None:
    """End this process once it has another parent."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


@contextmanager
def _ray(jobs: int, address: str | None) -> Iterator[int]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell its makers of each use
    import ray
    from joblib import register_parallel_backend
    from ray.util.joblib.ray_backend import RayBackend

    def streaming(**how: Any) -> Any:
        backend = RayBackend(**how)
        # Its base class, a pool of plain processes, says no; but Ray's calls back as each task is done.
        backend.supports_return_generator = True
        return backend

    register_parallel_backend("ray", streaming)
    local = {"num_cpus": jobs, "include_dashboard": False} if address is None else {"address": address}
    with reachable("--backend ray", address):
        ray.init(**local, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield jobs if address is None else int(ray.cluster_resources().get("CPU", 1))
    finally:
        ray.shutdown()
