"""Workers for a sweep's cells: processes of this machine, or a Dask or Ray cluster, through joblib.

A worker has one thread: a cell's work runs in line (`learning.trainer`), so further threads would only take
turns.
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
from typing import Any, Literal, assert_never

from joblib import Parallel, cpu_count, parallel_config

from simfl.connect.dask_engine import connected
from simfl.connect.engine import reachable
from simfl.errors import BadInput

Backend = Literal["loky", "dask", "ray"]
JOBS_PER_CORE = 2
"""Processes for each core; more only take turns."""
MODULES = {"loky": "joblib", "dask": "distributed", "ray": "ray"}
"""The library behind each backend."""


def check_jobs(jobs: int) -> None:
    """Check a number of processes.

    Raises:
        BadInput: It is below 1, or more than `JOBS_PER_CORE` for each core.
    """
    max_jobs = JOBS_PER_CORE * cpu_count()
    if not 1 <= jobs <= max_jobs:
        raise BadInput(
            f"jobs={jobs} must be at least 1 and at most {max_jobs}, {JOBS_PER_CORE} for each core here"
        )


@contextmanager
def workers(
    backend: Backend, jobs: int, address: str | None = None, ordered: bool = False
) -> Iterator[Callable[..., Any]]:
    """Yield a joblib `Parallel` that yields results as they come.

    Args:
        backend: What runs the tasks.
        jobs: Workers that are started here.
        address: Address of a Dask scheduler or a Ray cluster; a cluster is started here unless given.
        ordered: Yield results in the order of the tasks.

    Raises:
        BadInput: The cluster does not answer, has several threads a worker, or would be started with more
            jobs than `check_jobs` allows.
    """
    if address is None:
        check_jobs(jobs)
    results = "generator" if ordered else "generator_unordered"
    # A generator and tasks one by one: each cell is stored as soon as it is done, and few are under way when
    # a sweep is stopped.
    options: dict[str, Any] = {"return_as": results, "batch_size": 1, "pre_dispatch": "2*n_jobs"}
    with ExitStack() as stack:
        # joblib warns when it renews a worker, or cancels tasks after an interrupt: neither is a user's
        # fault.
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", category=UserWarning, module=r"joblib\.")
        match backend:
            case "loky":
                # One thread in each worker's libraries, or jobs times threads would share the cores.
                stack.enter_context(parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1))
                # With one job joblib runs tasks in this process, which must keep its handling of interrupts.
                if jobs > 1:
                    options["initializer"] = partial(_belong_to, os.getpid())
            case "dask":
                client = connected("--backend dask", jobs, address)
                stack.enter_context(parallel_config("dask", client=stack.enter_context(client)))
            case "ray":
                stack.enter_context(parallel_config("ray", n_jobs=stack.enter_context(_ray(jobs, address))))
            case _:
                assert_never(backend)
        yield stack.enter_context(Parallel(**options))


def _belong_to(parent: int) -> None:
    """Leave interrupts to a worker's parent, and end when the parent does, even if it is killed."""
    # Ctrl-C goes to all processes of the terminal. The parent stops the workers when it has stored what is
    # done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A parent that is killed sends nothing: the worker must look.
    threading.Thread(target=follow, args=(parent,), daemon=True).start()


def follow(parent: int) -> None:
    """End this process once it has another parent."""
    while os.getppid() == parent:
        time.sleep(1)
    # `sys.exit` would end this thread alone.
    os._exit(1)


@contextmanager
def _ray(jobs: int, address: str | None) -> Iterator[int]:
    # Ray sends usage statistics to its makers unless this is set before its import.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from joblib import register_parallel_backend
    from ray.util.joblib.ray_backend import RayBackend

    def streaming(**options: Any) -> Any:
        backend = RayBackend(**options)
        # Its base class, a pool of plain processes, sets False; but Ray's calls back as each task is done.
        backend.supports_return_generator = True
        return backend

    register_parallel_backend("ray", streaming)
    # A dashboard would open a port.
    local = {"num_cpus": jobs, "include_dashboard": False} if address is None else {"address": address}
    with reachable("--backend ray", address):
        ray.init(**local, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield jobs if address is None else int(ray.cluster_resources().get("CPU", 1))
    finally:
        ray.shutdown()
