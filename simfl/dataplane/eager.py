"""Operations that are done when they are asked for, save what gains by waiting for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simfl.dataplane.deferred import PENDING, Deferred, Held, batched, deferred, forgotten, grouped
from simfl.dataplane.handles import Handle, HandleList
from simfl.dataplane.ops import Ops, Oracle
from simfl.errors import Diverged, step_failed


class EagerOps(Ops):
    """Computes at once. With `batching`, calls of a batched kernel wait until one of them is needed: the
    timeline runs ahead meanwhile, so what starts at one virtual instant is done together."""

    def __init__(self, q: int, batching: bool = False, oracle: Oracle | None = None) -> None:
        super().__init__(q, oracle)
        self.batching = batching
        self._held: list[Handle] = []

    def _run(self, kernel: Callable[..., Any], shape: tuple[int, int, int], args: tuple[Any, ...]) -> Handle:
        if self.deferring:
            return Handle(*shape, Deferred(kernel, args, self.where))
        if self.batching and batched(kernel):
            handle = Handle(*shape, Held(kernel, args, self.where))
            self._held.append(handle)
            return handle
        return Handle(*shape, self.call(kernel, tuple(map(self._content, args))))

    def _content(self, argument: Any) -> Any:
        kind = type(argument)
        if kind is Handle:
            content = argument.content
            if type(content) is Held:
                self._release()
            return self._settled(content) if type(content) is Deferred else argument.content
        if kind is list or kind is HandleList:
            contents = [one.content if type(one) is Handle else one for one in argument]
            if not PENDING.isdisjoint(map(type, contents)):
                contents = [self._content(one) for one in argument]
            return contents
        return argument

    def _settled(self, wanted: Deferred) -> Any:
        """The content of what was noted, and with it of all that it needs; none of the step's time."""
        if wanted.done:
            return wanted.value
        with self.uncharged():
            path = [wanted]
            while path:
                one = path[-1]
                needed = [] if one.done else [need for need in deferred(one.args) if not need.done]
                path += needed
                if not needed:
                    path.pop()
                    if not one.done:
                        one.finish(self._content, self.call)
        return wanted.value

    def replace(self, handle: Handle, content: Any) -> None:
        handle.content = Deferred(forgotten, (), self.where) if content is None else content

    def _release(self) -> None:
        """Do what waits; what it needs itself has content, since that was needed before it was asked."""
        held, self._held = self._held, []
        for group in grouped(held, lambda handle: handle.content.kernel):
            kernel, where = group[0].content.kernel, group[0].content.where
            calls = [tuple(map(self._content, handle.content.args)) for handle in group]
            try:
                results = kernel.many(calls)
            except Exception as error:
                raise step_failed(where, kernel.__name__, error) from error
            for handle, result in zip(group, results, strict=True):
                if isinstance(result, Diverged):  # the first, as they were asked for
                    raise step_failed(handle.content.where, "", result) from result
                handle.content = result

    async def get(self, handle: Handle) -> Any:
        return self._content(handle)

    async def drain(self) -> None:
        self._release()
