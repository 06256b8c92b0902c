"""Operations of which only lengths and counts are known: the same timeline without the work."""

from typing import Any

from simfl.crypto import keys, mds, prg, row_routing
from simfl.dataplane import audit
from simfl.dataplane.handles import Handle, Kernel, Shape
from simfl.dataplane.nodes import symbolic
from simfl.dataplane.ops import Ops


class ShadowOps(Ops):
    """Knows lengths and counts only. Without content, all handles of a shape are one."""

    executes = False

    def __init__(self, q: int) -> None:
        super().__init__(q)
        self._handles: dict[Shape, Handle] = {}

    def _run(self, kernel: Kernel, shape: Shape, args: tuple[Any, ...]) -> Handle:
        if (handle := self._handles.get(shape)) is None:
            handle = self._handles[shape] = Handle(*shape)
        return handle


class Token:
    """Stands for content in memory: it is counted from its creation until the last reference is dropped.

    Attributes:
        nbytes: Length of a row.
        weight: Bytes of all rows.
        streams: True for content that is not held where coded shares stream.
    """

    __slots__ = ("nbytes", "probe", "streams", "weight")

    def __init__(self, probe: "MemoryProbeOps", nbytes: int, weight: int, streams: bool) -> None:
        self.probe, self.nbytes, self.weight, self.streams = probe, nbytes, weight, streams
        probe.weigh(weight, streams)

    def __del__(self) -> None:
        self.probe.weigh(-self.weight, self.streams)

    def copy(self) -> "Token":
        """Return a token of one row, which `row_routing.pick` copies."""
        return Token(self.probe, self.nbytes, self.nbytes, self.streams)


class MemoryProbeOps(Ops):
    """A shadow whose handles weigh as much as content would: tokens, shared and let go exactly as arrays are.
    So `peak`, the most that all tokens weigh at once, is what a run in line holds, to the byte, apart from
    what a kernel needs while it works and from the data set. A pool, which makes content later, holds it no
    longer. rest: the most when an aggregate was there, without coded shares and masks, which may stream."""

    def __init__(self, q: int) -> None:
        super().__init__(q)
        self.live = self.kept = self.peak = self.rest = 0

    def weigh(self, nbytes: int, streams: bool) -> None:
        """Count `nbytes` more, or fewer if negative."""
        self.live += nbytes
        self.kept += 0 if streams else nbytes
        self.peak = max(self.peak, self.live)

    def _run(self, kernel: Kernel, shape: Shape, args: tuple[Any, ...]) -> Handle:
        n, size = shape[0], shape[1] * shape[2].itemsize
        long = size >= row_routing.LONG_BYTES
        if long and kernel in (row_routing.pick, row_routing.gather, row_routing.join):
            return Handle(*shape, kernel(*map(symbolic, args)))
        if kernel is audit.add_levels and isinstance(args[0], Handle):
            return Handle(*shape, args[0].content)  # added in its place
        if long and kernel in (keys.seal, keys.open_):
            return Handle(*shape, [Token(self, size, size, True) for _ in range(n)])
        return Handle(*shape, [Token(self, size, n * size, kernel in (mds.encode, prg.expand))] * n)
