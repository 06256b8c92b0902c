"""Operations that are done when they are asked for, save what gains by waiting for others."""

from typing import Any

from simfl.dataplane.handles import Handle, HandleList, Kernel, Shape
from simfl.dataplane.nodes import Node, batched, symbolic, value, within
from simfl.dataplane.ops import Ops, Oracle
from simfl.errors import Diverged, step_failed


class EagerOps(Ops):
    """Computes at once. With `batching`, calls of a batched kernel wait until one of them is needed: the
    timeline runs ahead meanwhile, so what starts at one virtual instant is done together."""

    def __init__(self, q: int, batching: bool = False, oracle: Oracle | None = None) -> None:
        super().__init__(q, oracle)
        self.batching = batching
        self._waiting: dict[Node, Handle] = {}

    def _run(self, kernel: Kernel, shape: Shape, args: tuple[Any, ...]) -> Handle:
        if self.deferring:
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
            contents = [one.content if type(one) is Handle else one for one in argument]
            if Node in map(type, contents):
                contents = [self._settled(one) if type(one) is Node else one for one in contents]
            return contents
        return argument

    def _settled(self, wanted: Node) -> Any:
        """Return the value of a node, made now with all that it needs; none of that is the step's time."""
        if wanted.done:
            return wanted.value
        with self.uncharged():
            path = [wanted]  # not recursive: a resumed run may have left a long chain of models
            while path:
                node = path[-1]
                needed = [need for need in within(node.args, Node) if not need.done]
                path += needed
                if not needed:
                    self._make(path.pop())
        return wanted.value

    def _make(self, node: Node) -> None:
        if node in self._waiting:
            self._release()
        if node.done:
            return
        try:
            content = self.call(node.kernel, tuple(map(value, node.args)))
        except Exception as error:
            raise step_failed(node.where, getattr(node.kernel, "__name__", ""), error) from error
        node.finish(content)

    def replace(self, handle: Handle, content: Any) -> None:
        handle.content = Node.of(content, self.where) if content is None else content

    def _release(self) -> None:
        """Do the calls that wait, by kernel and in the order in which they were asked for."""
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
                if isinstance(result, Diverged):  # the first, as they were asked for
                    raise step_failed(node.where, "", result) from result
                node.finish(result)
                handle.content = result

    async def get(self, handle: Handle) -> Any:
        return self._content(handle)

    async def drain(self) -> None:
        self._release()
