"""Operations that are executed at once, except calls that gain by waiting for others.

Invariant: the content is that of a call of the kernel with the arguments' content, whenever it is executed.
Work that had to wait is executed when a step needs its result, and never counts as that step's time.
"""

import ctypes
from typing import Any

from simfl.crypto.short_loops import import_compiled
from simfl.dataplane.handles import Handle, HandleList, Kernel, Shape
from simfl.dataplane.nodes import Node, batched, symbolic, value, within
from simfl.dataplane.ops import Ops, Oracle
from simfl.errors import Diverged, step_failed


def prepare_process() -> None:
    """Import and compile every loop, and keep freed memory in the process, before anything is timed.

    A first call in a timed step would count as that step's work: `tests/engine/test_first_second.py`.
    """
    import_compiled()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # glibc then gives freed memory to the next step, and not back to the system: each page that a step is
        # the first to touch costs it a fault, which made LightSecAgg's first coding a third longer. Numbers
        # and bounds are from mallopt(3).
        m_trim_threshold, m_mmap_threshold = -1, -3
        mallopt(m_trim_threshold, 2**31 - 1)
        mallopt(m_mmap_threshold, 2**25)


class EagerOps(Ops):
    """Computes at once.

    Args:
        q: Modulus of the field.
        batching: Calls of a batched kernel wait until one of them is needed. While they wait the timeline
            runs ahead, so that trainings that start at one virtual time are executed together.
        oracle: Compares each result with another implementation's.
    """

    def __init__(self, q: int, batching: bool = False, oracle: Oracle | None = None) -> None:
        super().__init__(q, oracle)
        self.batching = batching
        self._waiting: dict[Node, Handle] = {}

    def _run(self, kernel: Kernel, shape: Shape, args: tuple[Any, ...]) -> Handle:
        if self.deferring:
            # Not in `_waiting`: a replayed operation is executed only if a later one needs it.
            return Handle(*shape, Node(kernel, tuple(map(symbolic, args)), self.where))
        contents = tuple(map(self._content, args))
        if not (self.batching and batched(kernel)):
            return Handle(*shape, self.call(kernel, contents))
        node = Node(kernel, contents, self.where)
        self._waiting[node] = handle = Handle(*shape, node)
        return handle

    def _content(self, argument: Any) -> Any:
        kind = type(argument)
        if kind is Handle:
            content = argument.content
            return self._settled(content) if type(content) is Node else content
        if kind is list or kind is HandleList:
            contents = [part.content if type(part) is Handle else part for part in argument]
            # Most lists have no node: `map` finds that without a step of Python for each part.
            if Node in map(type, contents):
                contents = [self._settled(part) if type(part) is Node else part for part in contents]
            return contents
        return argument

    def _settled(self, target: Node) -> Any:
        """Return the value of a node, which is computed now with each node that it needs, uncharged."""
        if target.done:
            return target.value
        with self.uncharged():
            # A stack and not a recursion: a resumed run may leave a chain of models longer than Python's
            # stack.
            path = [target]
            while path:
                node = path[-1]
                # The node stays on the path until its inputs are done, and is then looked at again.
                inputs = [need for need in within(node.args, Node) if not need.done]
                path += inputs
                if not inputs:
                    self._make(path.pop())
        return target.value

    def _make(self, node: Node) -> None:
        # One needed call of a batched kernel releases the waiting ones.
        if node in self._waiting:
            self._release()
        # A node may be on the path twice, or have been executed with the batch.
        if node.done:
            return
        try:
            content = self.call(node.kernel, tuple(map(value, node.args)))
        except Exception as error:
            raise step_failed(node.where, getattr(node.kernel, "__name__", ""), error) from error
        node.finish(content)

    def replace(self, handle: Handle, content: Any) -> None:
        # Without content a node that fails when it is needed: no None may pass for a value.
        handle.content = Node.of(content, self.where) if content is None else content

    def _release(self) -> None:
        """Execute the waiting calls, by kernel and in the order in which they were requested."""
        waiting, self._waiting = self._waiting, {}
        while waiting:
            kernel: Any = next(iter(waiting)).kernel
            group = [node for node in waiting if node.kernel is kernel][: kernel.chunk]
            handles = [waiting.pop(node) for node in group]
            try:
                results = kernel.many([tuple(map(value, node.args)) for node in group])
            except Exception as error:
                raise step_failed(group[0].where, kernel.__name__, error) from error
            for node, handle, result in zip(group, handles, results, strict=True):
                # The first in the order of requests, so that the error does not depend on the batch.
                if isinstance(result, Diverged):
                    raise step_failed(node.where, "", result) from result
                node.finish(result)
                # The handle holds the value itself, so that the node can be freed.
                handle.content = result

    async def get(self, handle: Handle) -> Any:
        return self._content(handle)

    async def drain(self) -> None:
        self._release()
