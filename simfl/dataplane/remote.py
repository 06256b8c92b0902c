"""A pool that sends some kernels (local training, evaluation) elsewhere: only their data moves.

The timeline runs some rounds ahead, and then all trainings that it has asked for are sent as soon as their
weights are there: those of rounds to come too, where they do not wait for a round before. Calls that take
a training's result are done here, by the pool's own threads. A call that is elsewhere occupies no thread.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

from simfl.dataplane.handles import Handle, Kernel, Shape
from simfl.dataplane.nodes import Node, value
from simfl.dataplane.ops import Oracle
from simfl.dataplane.pooled import PooledOps

Values = list[Any]
ROUNDS_AHEAD = 4


class RemoteKernel(Protocol):
    """A kernel that is executed by other processes."""

    @property
    def chunk(self) -> int:
        """Calls that gain by being done together: a unit."""
        ...

    @property
    def parallel_units(self) -> int:
        """Units that are executed at a time."""
        ...

    def send(
        self, calls: Sequence[tuple[Any, ...]], done: Callable[[Values | BaseException], None]
    ) -> None: ...


Placement = tuple[Kernel, RemoteKernel]


class RemoteOps(PooledOps):
    """Sends the kernels of `places` away; all else is done as in a pool."""

    def __init__(
        self,
        q: int,
        workers: int,
        budget_bytes: int,
        streaming: bool,
        oracle: Oracle | None,
        places: Sequence[Placement],
    ) -> None:
        super().__init__(q, workers, budget_bytes, streaming, oracle)
        self.rounds_ahead = ROUNDS_AHEAD
        self._in_line = False
        self._places = places
        self._asked: list[Node] = []
        self._leaving: list[Node] = []
        self._away = 0  # units
        self._closed = False
        # Sending takes long (weights go to all workers), and the timeline must not wait for it.
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="simfl-sender")

    def _place(self, kernel: Kernel) -> RemoteKernel | None:
        return next((place for remote, place in self._places if remote == kernel), None)

    def _run(self, kernel: Kernel, shape: Shape, args: tuple[Any, ...]) -> Handle:
        sent = self._place(kernel) is not None
        self._small = self._small and not sent  # never in line, however little it is
        handle = super()._run(kernel, shape, args)
        if sent and not self.deferring:
            self._asked.append(handle.content)
        return handle

    @property
    def _busy(self) -> bool:
        return super()._busy or self._away > 0

    def _queue(self, node: Node, follows: bool = False) -> None:  # under the lock
        if self._place(node.kernel) is None:
            super()._queue(node, follows)
        else:
            node.small = True  # nothing for the pool's threads
            self._leaving.append(node)

    def _start_workers(self) -> None:  # under the lock
        super()._start_workers()
        while self._leaving and self._error is None:
            kernel = self._leaving[0].kernel
            place = self._place(kernel)
            assert place is not None
            alike = [node for node in self._leaving if node.kernel == kernel]
            self._leaving = [node for node in self._leaving if node.kernel != kernel]
            size = min(place.chunk, -(-len(alike) // place.parallel_units))
            for first in range(0, len(alike), size):
                self._away += 1
                self._sender.submit(self._send, place, alike[first : first + size])

    def _send(self, place: RemoteKernel, unit: list[Node]) -> None:
        try:
            place.send([tuple(map(value, node.args)) for node in unit], partial(self._returned, unit))
        except BaseException as error:
            self._returned(unit, error)

    def _returned(self, unit: list[Node], outcome: Values | BaseException) -> None:
        with self._lock:
            if isinstance(outcome, BaseException) and not self._closed:
                self._error = self._error or (unit[0], outcome)
        try:
            if not isinstance(outcome, BaseException) and not self._closed:
                self._finish(unit, outcome)
        finally:
            with self._lock:
                self._away -= 1  # not before its values are there: what is wanted waits for them
        if not self._closed:
            self._wake()

    # -- the coroutine's side
    async def get(self, handle: Handle) -> Any:
        with self._lock:
            asked, self._asked = self._asked, []
            self._schedule(asked)
        return await super().get(handle)

    def close(self) -> None:
        with self._lock:
            self._closed, self._leaving = True, []
        self._sender.shutdown(wait=False, cancel_futures=True)
        super().close()
