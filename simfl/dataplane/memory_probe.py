"""The bytes that a run would hold: a shadow run whose handles weigh as much as content would.

The law: a handle's content is a token of as many bytes, shared and let go exactly as arrays are. So the most
that all tokens weigh at once is what a run in line holds, to the byte, apart from what a kernel needs while
it works and from the data set. A pool, which makes content later, holds it no longer than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simfl.crypto import keys, mds, prg, row_routing
from simfl.dataplane import audit
from simfl.dataplane.handles import Handle, HandleList
from simfl.dataplane.ops import Ops


class Token:
    """So many bytes, for as long as somebody holds it; `nbytes` is the length of a row. streams: where coded
    shares stream, it would not be held."""

    __slots__ = ("nbytes", "scale", "streams", "weight")

    def __init__(self, scale: MemoryProbeOps, nbytes: int, weight: int, streams: bool) -> None:
        self.scale, self.nbytes, self.weight, self.streams = scale, nbytes, weight, streams
        scale.weigh(weight, streams)

    def __del__(self) -> None:
        self.scale.weigh(-self.weight, self.streams)

    def copy(self) -> Token:
        """The bytes of one row again."""
        return Token(self.scale, self.nbytes, self.nbytes, self.streams)


class MemoryProbeOps(Ops):
    """Knows lengths and counts only. peak: the most bytes that were held at once; rest: the most that were
    held when an aggregate was there, without what is not kept where coded shares stream (they and masks)."""

    def __init__(self, q: int) -> None:
        super().__init__(q)
        self.live = self.kept = self.peak = self.rest = 0

    def weigh(self, nbytes: int, streams: bool) -> None:
        """So many bytes more, or fewer."""
        self.live += nbytes
        self.kept += 0 if streams else nbytes
        self.peak = max(self.peak, self.live)

    def _run(self, kernel: Callable[..., Any], shape: tuple[int, int, int], args: tuple[Any, ...]) -> Handle:
        n, length, width = shape
        size = length * width
        long = size >= row_routing.LONG_BYTES
        if long and kernel in (row_routing.pick, row_routing.gather, row_routing.join):
            return Handle(*shape, kernel(*map(_content, args)))
        if kernel is audit.add_levels and isinstance(args[0], Handle):
            return Handle(*shape, args[0].content)  # added in its place
        if long and kernel in (keys.seal, keys.open_):
            return Handle(*shape, [Token(self, size, size, True) for _ in range(n)])
        return Handle(*shape, [Token(self, size, n * size, kernel in (mds.encode, prg.expand))] * n)


def _content(argument: Any) -> Any:
    if isinstance(argument, Handle):
        return argument.content
    return [_content(part) for part in argument] if isinstance(argument, list | HandleList) else argument
