"""Attempts in processes that can be killed: one that hangs in compiled code, or that takes the machine's
memory, costs a worker and is a finding."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from unittest.mock import patch

from simfl.dataplane.eager import prepare_process
from tests.fuzz.attempt import PATIENCE, Report, bounded_memory

KILL_S = 180.0 * PATIENCE
"""An attempt stops itself long before, unless it is in code that heeds no signal."""

Job = Callable[[], Report]
"""An attempt, such as a `partial`: it travels to a worker."""

Case = tuple[str, int, Job]
"""A part, a number in it, and the attempt."""


class Worker:
    """A process that makes one attempt at a time; another one takes its place when it dies."""

    def __init__(self, nice: int = 0) -> None:
        self.nice = nice
        self._start()

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")  # not fork: torch's threads do not live through it
        self.connection, far = spawn.Pipe()
        self.process = spawn.Process(target=_serve, args=(far, self.nice), daemon=True)
        self.process.start()
        far.close()

    def give(self, job: Job) -> None:
        """Begin an attempt."""
        self.job, self.again = job, True
        self._send()

    def _send(self) -> None:
        self.since = time.monotonic()
        try:
            self.connection.send(self.job)
        except OSError:  # it was ended from outside, between two attempts
            self._restart()
            self.connection.send(self.job)

    def report(self) -> Report | None:
        """What came of it, or None if it is still at it. Whose process is lost twice is to blame for it."""
        try:
            if self.connection.poll():
                report: Report = self.connection.recv()
                return report
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            self._restart()
            if not self.again:
                return Report("load", key=f"died: exit code {code}", seconds=time.monotonic() - self.since)
            self.again = False
            self._send()
        if time.monotonic() > self.since + KILL_S:
            self._restart()
            return Report("load", key=f"killed after {KILL_S:g} s", seconds=KILL_S)
        return None

    def _restart(self) -> None:
        self.stop()
        self._start()

    def attempt(self, job: Job) -> Report:
        """One attempt, waited for."""
        self.give(job)
        while (report := self.report()) is None:
            wait([self.connection], timeout=1.0)
        return report

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def attempts(*queues: tuple[Iterator[Case], int, int]) -> Iterator[tuple[str, int, Report]]:
    """Attempt the cases of several queues beside each other.

    Args:
        queues: For each, its cases, a number of processes, and their niceness.

    Yields:
        A case's part, its number and its report, in the order in which they end.
    """
    workers: dict[Worker, Iterator[Case]] = {}
    for cases, processes, nice in queues:
        workers |= {Worker(nice): cases for _ in range(processes)}
    busy: dict[Worker, tuple[str, int]] = {}

    def give(worker: Worker) -> None:
        for part, number, job in workers[worker]:
            worker.give(job)
            busy[worker] = part, number
            return

    try:
        for worker in workers:
            give(worker)
        while busy:
            wait([worker.connection for worker in busy], timeout=1.0)
            for worker in list(busy):
                if (report := worker.report()) is not None:
                    yield *busy.pop(worker), report
                    give(worker)
    finally:
        for worker in workers:
            worker.stop()


def _serve(connection: Connection, nice: int) -> None:
    """The worker's side."""
    os.nice(nice)
    # Warnings of numpy about mutants' numbers would bury the progress.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with bounded_memory(), suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            connection.send(connection.recv()())


@contextmanager
def own_cache() -> Iterator[None]:
    """A folder for what simfl remembers of this machine: mutants' models do not belong in the user's.

    Loops are compiled into it first: six processes that compile at once exceed a conversation's time.
    """
    with (
        tempfile.TemporaryDirectory(prefix="simfl-fuzz-cache-") as folder,
        patch.dict(os.environ, dict.fromkeys(("SIMFL_CACHE", "MPLCONFIGDIR", "NUMBA_CACHE_DIR"), folder)),
    ):
        compiling = multiprocessing.get_context("spawn").Process(target=prepare_process)
        compiling.start()
        compiling.join()
        yield
