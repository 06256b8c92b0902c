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

from tests.fuzz.attempt import Report, bounded_memory

KILL_S = 180.0
"""An attempt stops itself long before, unless it is in code that heeds no signal."""

Job = Callable[[], Report]
"""An attempt, such as a `partial`: it travels to a worker."""


class Worker:
    """A process that makes one attempt at a time; another one takes its place when it dies."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")  # not fork: torch's threads do not live through it
        self.connection, far = spawn.Pipe()
        self.process = spawn.Process(target=_serve, args=(far,), daemon=True)
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


def attempts(jobs: Iterator[Job], processes: int) -> Iterator[tuple[int, Report]]:
    """Yield each job's number, from 0, and its report, in the order in which they end."""
    workers = [Worker() for _ in range(processes)]
    busy: dict[int, int] = {}
    numbered = enumerate(jobs)
    try:
        for place, worker in enumerate(workers):
            _next(place, worker, busy, numbered)
        while busy:
            wait([workers[place].connection for place in busy], timeout=1.0)
            for place in list(busy):
                if (report := workers[place].report()) is not None:
                    yield busy.pop(place), report
                    _next(place, workers[place], busy, numbered)
    finally:
        for worker in workers:
            worker.stop()


def _next(place: int, worker: Worker, busy: dict[int, int], numbered: Iterator[tuple[int, Job]]) -> None:
    for number, job in numbered:
        worker.give(job)
        busy[place] = number
        return


def _serve(connection: Connection) -> None:
    """The worker's side."""
    # Warnings of numpy about mutants' numbers would bury the progress.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with bounded_memory(), suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            connection.send(connection.recv()())


@contextmanager
def own_cache() -> Iterator[None]:
    """A folder for what simfl remembers of this machine: mutants' models do not belong in the user's."""
    with (
        tempfile.TemporaryDirectory(prefix="simfl-fuzz-cache-") as folder,
        patch.dict(os.environ, dict.fromkeys(("SIMFL_CACHE", "MPLCONFIGDIR", "NUMBA_CACHE_DIR"), folder)),
    ):
        yield
