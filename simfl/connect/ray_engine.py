"""Workers of a Ray cluster, over the client protocol of its head.

A process that joins a cluster as a driver is ended, without a word, once the head has been away for a minute;
a client of the head gets an error instead, and keeps what it finished.
"""

import logging
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from simfl.connect import worker
from simfl.connect.engine import (
    ANSWERS_S,
    LOOK_EVERY_S,
    TRIES,
    Engine,
    gone,
    reachable,
    telling_without_workers,
)
from simfl.errors import ClusterFailed, RunFailed, blame, cut, need

SETTINGS = {
    "RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S": "2",  # of the first of three tries
    "RAY_CLIENT_MAX_CONNECTION_TIMEOUT_S": "3",  # of the others
    "RAY_CLIENT_RECONNECT_GRACE_PERIOD": str(ANSWERS_S),
    "RAY_ENABLE_AUTO_CONNECT": "0",  # else what is asked for after the end starts a cluster here
}
"""Ray reads most of them when it is first imported."""


class RayEngine:
    """`Engine` of the client that `ray.init` has connected: tasks for any worker process of any machine, done
    again by Ray where one dies. Weights are the head's. kind: the resource of which each task takes one."""

    def __init__(self, ray: Any, address: str, gpu: bool) -> None:
        self.ray, self.head = ray, f"the Ray head at {address}"
        self.kind = "GPU" if gpu else "CPU"
        # A process that had a GPU would end after its call, and its trainers with it.
        kept: dict[str, Any] = {"num_gpus": int(gpu), "max_calls": 0}
        self._attempt = ray.remote(num_cpus=1, max_retries=TRIES - 1, retry_exceptions=True, **kept)(attempt)
        self._ask = ray.remote(num_cpus=0, max_retries=0, **kept)(attempt)  # beside what others' tasks occupy

    def machines(self) -> dict[str, dict[str, Any]]:
        """Return the nodes that have the resource, by address."""
        alive = [
            node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get(self.kind, 0) >= 1
        ]
        return {f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}": node for node in alive}

    def workers(self) -> int:
        return sum(int(node["Resources"][self.kind]) for node in self.machines().values())

    def wait(self) -> None:
        """TimeoutError if no worker comes."""
        until_s = time.monotonic() + ANSWERS_S
        while not self.workers():
            if time.monotonic() > until_s:
                raise TimeoutError(f"no node of it has a {self.kind}")
            time.sleep(LOOK_EVERY_S)

    def ask(self, function: Any, *args: Any) -> dict[str, Any]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        machines, asked = self.machines(), {}
        for address, node in machines.items():
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[address] = self._ask.options(scheduling_strategy=there).remote(function, *args)
        answers: dict[str, Any] = {}
        for address, answer in asked.items():
            gpus = int(machines[address]["Resources"].get("GPU", 0))
            try:
                answers[address] = self.ray.get(answer)
            except Exception as error:
                answers[address] = self._told(error)
            if self.kind == "GPU" and gpus > 1:  # a process would keep the GPU of its first call
                answers[address] = f"has {gpus} GPUs: start a Ray node for each"
        return answers

    def hold(self, weights: Any) -> Any:
        with self._there():
            return self.ray.put(weights)

    def submit(self, function: Any, *args: Any, done: Callable[[Any], None]) -> None:
        with self._there():
            future = self._attempt.remote(function, *args).future()
        future.add_done_callback(lambda future: done(self._outcome(future)))

    @contextmanager
    def _there(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            if self.ray.is_initialized():
                raise
            raise ClusterFailed(gone(self.head)) from None

    def _outcome(self, future: Any) -> Any:
        error = future.exception()
        return future.result() if error is None else self._told(error)

    def _told(self, error: BaseException) -> BaseException:
        from ray.exceptions import RayError, RayTaskError, WorkerCrashedError

        if isinstance(error, ConnectionError):
            return ClusterFailed(gone(self.head))
        if isinstance(error, WorkerCrashedError):
            return ClusterFailed(f"{TRIES} workers died while they did this")
        if isinstance(error, RayTaskError):
            return error.cause if isinstance(error.cause, RunFailed) else RunFailed(one_line(error.cause))
        return ClusterFailed(one_line(error)) if isinstance(error, RayError) else error


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {cut(' '.join(str(error).split()))}"


def attempt(function: Any, *args: Any) -> Any:
    """Return a worker's answer. RunFailed, with the place, for an error: its traceback stays here."""
    import ray

    name = ray.util.get_node_ip_address()
    try:
        return worker.attempt(name, function, *args)
    except Exception as error:
        raise RunFailed(blame(error) or one_line(error)) from None


@contextmanager
def opened(option: str, address: str, gpu: bool) -> Iterator[Engine]:
    """Yield the workers of the cluster whose head listens to clients at HOST:PORT. BadInput without any."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    need(option, "ray", "ray")
    need(option, "grpc", "ray")
    import ray

    with quiet():
        with reachable(option, f"ray://{address}"):
            connect(ray, address)
        try:
            there = RayEngine(ray, address, gpu)
            with reachable(option, f"ray://{address}"):
                there.wait()
            with telling_without_workers(option, there.head, there.workers):
                yield there
        finally:
            ray.shutdown()


def connect(ray: Any, address: str) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), ANSWERS_S).close()  # sooner than Ray
    try:
        ray.init(f"ray://{address}", log_to_driver=False, logging_level=logging.CRITICAL + 1)
    except ConnectionAbortedError as error:  # with the head's traceback, whose last line gives the reason
        reason = cut(str(error).strip().splitlines()[-1].rstrip("."))
        remedy = "try again, or start the head with GRPC_ENABLE_FORK_SUPPORT=0"
        raise RuntimeError(f"the head could not serve a Ray client: {reason}; {remedy}") from None
    except RuntimeError as error:  # of several lines
        raise RuntimeError(one_line(error)) from None
    except ConnectionError:
        remedy = "is it the head's port for clients (10001), and RAY_AUTH_MODE here as there?"
        raise ConnectionError(f"no answer to a Ray client: {remedy}") from None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Ray's own accounts of what a command says in one message."""
    logging.getLogger("ray.util.client.logsclient").disabled = True  # what the head's processes log
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"ray\.")
        yield
