"""Work handed to a pool of threads: symbolic nodes now, content when somebody wants it.

The timeline runs ahead of the data. A node costs no memory until it runs. It runs once something that is
wanted needs it: depth first, in the order of need, so that chains are finished and freed before new ones are
begun. Calls of a batched kernel (local training) go together once nothing else is left to do. The budget
bounds the pending output that somebody holds on to: beyond it, the driver pauses the timeline and everything
that is pending is done. All nodes are executed in the end, also those of users who were lost.

Threads, not processes: the libraries behind every kernel that takes long release the interpreter. Short
operations do not, or not for long enough: so until a run asks for its first long one, by counted work,
all is done in line. A short one whose arguments are there is so after that too, and no second thread is woken
for short ones that had to wait.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from simfl.crypto import prg
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import Handle, Kernel, Shape
from simfl.dataplane.nodes import Node, Queues, Recipe, batched, symbolic, value, within
from simfl.dataplane.ops import Oracle, seed_array
from simfl.dataplane.streamed_shares import ShareStreams
from simfl.dataplane.work import amount
from simfl.errors import Diverged, step_failed

# Counted work (elements, bytes, multiply-adds) below which an operation is done in line: half a millisecond
# or so, where handing it over and waiting for the interpreter takes a tenth of one.
SHORT = 1_000_000


class Promise(Handle):
    """A handle that notifies its pool once it is dropped."""

    __slots__ = ("pool",)
    pool: "PooledOps"

    def __del__(self) -> None:
        self.pool.on_handle_dropped(self.content)


class PooledOps(EagerOps):
    """Hands operations to a pool of threads.

    Args:
        q: Modulus of the field.
        workers: Threads.
        budget_bytes: Bound of the pending output.
        streaming: Coded shares are not held, but made, sealed, opened and summed one sender after the other.
        oracle: Compares each result with another implementation's.
    """

    events_per_slice = 1  # any of them may go beyond the budget

    def __init__(
        self, q: int, workers: int, budget_bytes: int, streaming: bool = False, oracle: Oracle | None = None
    ) -> None:
        super().__init__(q, True, oracle)
        self.workers, self.budget_bytes = workers, budget_bytes
        self.rounds_ahead = int(streaming)
        self.pauses = self.executed = 0
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="simfl")
        self._lock = threading.RLock()  # a handle may die while its own thread holds it
        self._streams = ShareStreams(self.call) if streaming else None
        self._in_line = SHORT > 0 and not streaming
        self._open: dict[Node, None] = {}
        self._unused: dict[Recipe, None] = {}
        self._routes_of_step: dict[tuple[Any, ...], list[Node]] = {}
        self._queues = Queues()
        self._threads = 0  # at work
        self._small = False  # the operation that is being noted
        self._large = 0  # how many large ones are ready or being done
        self._error: tuple[Node, BaseException] | None = None
        self._diverged: dict[Node, Diverged] = {}
        self._waiters: list[tuple[Callable[[], bool], asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def _op(self, kernel: Kernel, shape: Shape, work: dict[str, int], *args: Any) -> Handle:
        self._charge(work)
        self._small = amount(work, shape[1]) < SHORT
        if self._in_line and not self._small:
            self._in_line = False
            self._release()  # what waits now is nothing that a pool knows of
        handle = self._run(kernel, shape, args)
        self._small = False
        return handle

    def _run(self, kernel: Kernel, shape: Shape, args: tuple[Any, ...]) -> Handle:
        if self._in_line:
            return super()._run(kernel, shape, args)
        symbols = tuple(map(symbolic, args))
        if self.deferring:  # done only if something wanted needs it: not in `_open`, not in the budget
            return Handle(*shape, Node(kernel, symbols, self.where))
        node = None
        if self._streams is not None:
            shares = self._streams.shares(kernel, symbols, self.where)
            if shares is not None:
                return Handle(*shape, shares)
            node = self._streams.total(kernel, symbols, self.where)
        node = node or Node(kernel, symbols, self.where)
        quick = kernel is seed_array or (self._small and self._streams is None and not batched(kernel))
        if quick and all(need.done for need in within(symbols, Node)) and not any(within(symbols, Recipe)):
            self._make(node)
            self.executed += 1
            return Handle(*shape, node)
        if kernel is prg.expand:  # a mask is quicker made again than kept
            recipe = Recipe(kernel, symbols)
            with self._lock:
                self._unused[recipe] = None
            return Handle(*shape, recipe)
        node.size, node.small = shape[0] * shape[1] * shape[2].itemsize, self._small
        with self._lock:
            self._open[node] = None
            if node.routes:
                self._routes_of_step.setdefault(self.where, []).append(node)
            self.pending_bytes += node.size
        promise = Promise(*shape, node)
        promise.pool = self
        return promise

    def on_handle_dropped(self, node: Node) -> None:
        """Take a node whose handle was dropped out of the budget; others may need its value."""
        with self._lock:
            if not node.done:
                self.pending_bytes -= node.size
            node.size = 0

    # -- what is wanted
    def _schedule(self, targets: Iterable[Node]) -> None:  # under the lock
        """Let these run, and before them what they need, in the order in which they need it."""
        wanted = list(targets)
        for target in wanted:
            path = [self._enter(target, wanted)] if target.missing_inputs is None and not target.done else []
            while path:
                node, needs = path[-1]
                for need in needs:
                    if need.done:
                        continue
                    need.consumers.append(node)
                    node.missing_inputs = (node.missing_inputs or 0) + 1
                    if need.missing_inputs is None:
                        path.append(self._enter(need, wanted))
                        break
                else:
                    path.pop()
                    if not node.missing_inputs:
                        self._queue(node)
        self._start_workers()

    def _enter(self, node: Node, wanted: list[Node]) -> tuple[Node, Iterator[Node]]:
        node.missing_inputs = 0
        # Where one row that a step picks or relays is wanted, all of them are: then nothing holds a sender's
        # rows together any more, and each is freed when its receiver has opened it.
        if node.routes:
            wanted += self._routes_of_step.pop(node.where, ())
        if self._streams is not None:
            self._streams.prepare(node)
        return node, within(node.args, Node)

    def _queue(self, node: Node, follows: bool = False) -> None:  # under the lock
        self._large += not node.small
        self._queues.put(node, follows)

    def _want_everything(self) -> None:
        with self._lock:
            self._open |= dict.fromkeys(self._streams.rest() if self._streams is not None else [])
            self._schedule(self._open)

    # -- workers
    @property
    def _busy(self) -> bool:
        """True while a scheduled node is being executed."""
        return self._threads > 0

    def _start_workers(self) -> None:  # under the lock
        useful = min(self.workers, max(1, self._large)) - self._threads
        for _ in range(0 if self._error is not None else min(useful, len(self._queues))):
            self._threads += 1
            self._pool.submit(self._work)

    def _work(self) -> None:
        while True:
            with self._lock:
                unit = self._queues.take(self.workers) if self._error is None else []
                if not unit:
                    self._threads -= 1
                    break
                self._start_workers()
            kernel, calls = unit[0].kernel, [tuple(map(value, node.args)) for node in unit]
            many = getattr(kernel, "many", None)
            try:
                values = many(calls) if many is not None else [self.call(kernel, call) for call in calls]
            except BaseException as error:
                with self._lock:
                    self._error = self._error or (unit[0], error)
                continue
            self._finish(unit, values)
            del unit, calls, values  # while this thread waits for the lock, it must not hold them
        self._wake()

    def _finish(self, unit: list[Node], values: list[Any]) -> None:
        with self._lock:
            self._large -= sum(not node.small for node in unit)
            for node, content in zip(unit, values, strict=True):
                if isinstance(content, Diverged):
                    self._diverged[node] = content
                    continue
                for recipe in within(node.args, Recipe):
                    self.executed += self._unused.pop(recipe, 0) is None
                self.executed += self._open.pop(node, 0) is None
                self.pending_bytes -= node.size
                for consumer in reversed(node.finish(content)):
                    assert consumer.missing_inputs is not None
                    consumer.missing_inputs -= 1
                    if not consumer.missing_inputs:
                        self._queue(consumer, follows=True)
            if self._diverged:
                self._blame()
            self._start_workers()
        self._wake()

    def _blame(self) -> None:  # under the lock
        """Fail by the first training on the timeline that diverged."""
        # Those before it that are not done yet are done first: the user who is named does not depend on whose
        # turn it was. A node of a round that a resumed run went over is in nobody's order.
        first = next(iter(self._diverged))
        before: list[Node] = []
        for node in self._open:  # in the order of the timeline
            if node in self._diverged:
                first = node
                break
            if node.kernel is first.kernel:
                before.append(node)
        if before and first in self._open:
            self._schedule(before)
        else:
            self._error = self._error or (first, self._diverged[first])

    def _wake(self) -> None:
        with self._lock:
            over = self._error is not None or not self._busy
            woken = [waiter for waiter in self._waiters if over or waiter[0]()]
            self._waiters = [waiter for waiter in self._waiters if waiter not in woken]
        for _, loop, future in woken:
            loop.call_soon_threadsafe(_wake, future)

    # -- the coroutine's side
    async def _until(self, there: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while not there():
            self.raise_if_failed()
            future = loop.create_future()
            with self._lock:
                if there() or self._error is not None:
                    continue
                if not self._busy:
                    raise RuntimeError("what is wanted waits for work that nobody does")
                self._waiters.append((there, loop, future))
            await future

    def raise_if_failed(self) -> None:
        if self._error is not None:
            node, error = self._error
            raise step_failed(node.where, getattr(node.kernel, "__name__", ""), error) from error

    async def get(self, handle: Handle) -> Any:
        node = handle.content
        if isinstance(node, Recipe):
            node = Node(value, (node,), self.where)
        if self._in_line or not isinstance(node, Node):
            return await super().get(handle)
        with self._lock:
            self._schedule([node])
        await self._until(lambda: node.done)
        return node.value

    async def wait_for_budget(self) -> None:
        if self.pending_bytes <= self.budget_bytes or self._streams is not None:
            return
        self.pauses += 1
        self._want_everything()
        await self._until(lambda: self.pending_bytes <= self.budget_bytes // 2 or not self._busy)

    async def drain(self) -> None:
        await super().drain()
        self._want_everything()
        await self._until(lambda: not self._open)
        with self._lock:
            self._schedule([Node(value, (recipe,), ()) for recipe in self._unused])
        await self._until(lambda: not self._unused)

    def close(self) -> None:
        with self._lock:
            self._queues = Queues()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
