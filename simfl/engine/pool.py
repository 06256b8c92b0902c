"""Work handed to a pool of threads: symbolic nodes now, content when it is there.

The timeline runs ahead of the data. A node is an operation and its arguments (no closure); it runs when
its arguments have content, last ready first, so that chains are finished and freed before new ones are
begun. Calls of a batched kernel (local training) wait until somebody needs content, then those that are
ready go together. The budget bounds the bytes of output that are still to come: the driver pauses the
timeline while they exceed it. All nodes are executed, also those of users who were lost.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from simfl.errors import step_failed
from simfl.protocols.ops import Handle, Ops, batched, grouped


class Node:
    """One pending operation."""

    __slots__ = ("args", "consumers", "done", "kernel", "size", "value", "waiting", "where")

    def __init__(self, kernel: Callable[..., Any], args: tuple[Any, ...], size: int, where: Any) -> None:
        self.kernel: Callable[..., Any] | None = kernel
        self.args: tuple[Any, ...] = args
        self.size = size
        self.where = where
        self.value: Any = None
        self.done = False
        self.waiting = 0
        self.consumers: list[Node] = []


class PooledOps(Ops):
    """Hands operations to `workers` threads; `budget_bytes` bounds the pending output."""

    def __init__(self, q: int, workers: int, budget_bytes: int) -> None:
        super().__init__(q)
        self.workers = workers
        self.budget_bytes = budget_bytes
        self.pauses = 0
        self.executed = 0
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="simfl")
        self._lock = threading.Lock()
        self._ready: list[list[Node]] = []
        self._held: list[Node] = []
        self._wanted = 0
        self._busy = 0
        self._open = 0
        self._error: tuple[Node, BaseException] | None = None
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def _run(self, kernel: Callable[..., Any], shape: tuple[int, int, int], args: tuple[Any, ...]) -> Handle:
        node = Node(kernel, tuple(map(_symbolic, args)), shape[0] * shape[1] * shape[2], self.where)
        with self._lock:
            self._open += 1
            self.pending_bytes += node.size
            self.peak_bytes = max(self.peak_bytes, self.pending_bytes)
            for needed in _nodes(node.args):
                if not needed.done:
                    needed.consumers.append(node)
                    node.waiting += 1
            if not node.waiting:
                self._queue(node)
        return Handle(*shape, node)

    def _queue(self, node: Node) -> None:  # under the lock
        if batched(node.kernel):
            self._held.append(node)
        else:
            self._ready.append([node])
            self._start_worker()

    def _release(self) -> None:  # under the lock
        """Let go of what waits for company: in chunks, but some for every worker."""
        held, self._held = self._held, []
        for group in grouped(held, lambda node: node.kernel):
            share = -(-len(group) // self.workers)
            self._ready += [group[k : k + share] for k in range(0, len(group), share)]
        for _ in self._ready:
            self._start_worker()

    def _start_worker(self) -> None:  # under the lock
        if self._busy < self.workers and self._ready and self._error is None:
            self._busy += 1
            self._pool.submit(self._work)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._ready and self._wanted:
                    self._release()
                if not self._ready or self._error is not None:
                    self._busy -= 1
                    waiters, self._waiters = self._waiters, []
                    break
                unit = self._ready.pop()
                if self._ready:
                    self._start_worker()
            try:
                values = _execute(unit)
            except BaseException as error:
                with self._lock:
                    self._error = self._error or (unit[0], error)
                continue
            self._finish(unit, values)
            del unit, values
        for loop, future in waiters:
            loop.call_soon_threadsafe(_wake, future)

    def _finish(self, unit: list[Node], values: list[Any]) -> None:
        with self._lock:
            for node, value in zip(unit, values, strict=True):
                node.value, node.done = value, True
                node.args, node.kernel = (), None
                self.executed += 1
                self._open -= 1
                self.pending_bytes -= node.size
                consumers, node.consumers = node.consumers, []
                for consumer in consumers:
                    consumer.waiting -= 1
                    if not consumer.waiting:
                        self._queue(consumer)
            self._start_worker()
            waiters, self._waiters = self._waiters, []
        for loop, future in waiters:
            loop.call_soon_threadsafe(_wake, future)

    async def _progress(self) -> None:
        """Until a node finishes or nothing runs any more."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            if not self._busy:
                return
            self._waiters.append((loop, future))
        await future

    def failed(self) -> None:
        if self._error is not None:
            node, error = self._error
            raise step_failed(node.where, getattr(node.kernel, "__name__", ""), error) from error

    async def get(self, handle: Handle) -> Any:
        await self._until(lambda: handle.content.done)
        return handle.content.value

    async def room(self) -> None:
        if self.pending_bytes <= self.budget_bytes:
            return
        self.pauses += 1
        await self._until(lambda: self.pending_bytes <= self.budget_bytes // 2 or not self._busy)

    async def drain(self) -> None:
        await self._until(lambda: not self._open)

    async def _until(self, there: Callable[[], bool]) -> None:
        with self._lock:
            self._wanted += 1
            if self._busy < self.workers:
                self._release()
        try:
            while not there():
                self.failed()
                await self._progress()
        finally:
            with self._lock:
                self._wanted -= 1

    def close(self) -> None:
        with self._lock:
            self._ready.clear()
            self._held.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _execute(unit: list[Node]) -> list[Any]:
    """The values of nodes of one kernel."""
    kernel, calls = unit[0].kernel, [tuple(map(_value, node.args)) for node in unit]
    assert kernel is not None
    many: Callable[[list[tuple[Any, ...]]], list[Any]] | None = getattr(kernel, "many", None)
    return [kernel(*call) for call in calls] if many is None else many(calls)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _symbolic(argument: Any) -> Any:
    if isinstance(argument, Handle):
        return argument.content
    if isinstance(argument, list):
        return [_symbolic(a) for a in argument]
    return argument


def _value(argument: Any) -> Any:
    if isinstance(argument, Node):
        return argument.value
    if isinstance(argument, list):
        return [_value(a) for a in argument]
    return argument


def _nodes(argument: Any) -> Iterator[Node]:
    if isinstance(argument, Node):
        yield argument
    elif isinstance(argument, list | tuple):
        for part in argument:
            yield from _nodes(part)
