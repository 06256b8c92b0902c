"""Operations without content: the same timeline and the same counted work, but no kernel is executed.

`MemoryProbeOps` measures memory by CPython's reference counts: a token is freed at the moment at which an
array would be. So it needs no model of which step keeps which content.
"""

from typing import Any

from simfl.crypto import keys, mds, prg, row_routing
from simfl.dataplane import audit
from simfl.dataplane.handles import Handle, Kernel, Shape
from simfl.dataplane.nodes import symbolic
from simfl.dataplane.ops import Ops


class ShadowOps(Ops):
    """Holds shapes and counts only. Without content, all handles of a shape are one object."""

    executes = False

    def __init__(self, q: int) -> None:
        super().__init__(q)
        self._handles: dict[Shape, Handle] = {}

    def _run(self, kernel: Kernel, shape: Shape, args: tuple[Any, ...]) -> Handle:
        # One object for all of a shape keeps memory O(users) a round. It is never changed: a forged row gives
        # a new handle (`handles.with_forged`).
        if (handle := self._handles.get(shape)) is None:
            handle = self._handles[shape] = Handle(*shape)
        return handle


class Token:
    """Stands for content in memory, counted from its creation until the last reference is dropped.

    Attributes:
        nbytes: Bytes of a row.
        weight: Bytes of all rows.
        streams: True for content that is not held if coded shares stream.
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
    """A shadow run that measures the memory of a real one.

    Its handles hold tokens of the content's size, which are shared and released exactly as arrays are. So
    `peak` is, to the byte, the memory of a run in line, without the working memory of kernels and the data
    set (`tests/dataplane/test_memory_probe.py::test_a_probe_holds_as_much_as_an_executed_run`). A pool
    computes content later, and holds it no longer.

    Attributes:
        live: Bytes of all tokens now.
        kept: Bytes now without coded shares and masks, which may stream.
        peak: Maximum of `live`.
        rest: Maximum of `kept` at the time of an aggregate, which the caller records.
    """

    def __init__(self, q: int) -> None:
        super().__init__(q)
        self.live = self.kept = self.peak = self.rest = 0

    def weigh(self, nbytes: int, streams: bool) -> None:
        """Add a number of bytes, which may be negative."""
        self.live += nbytes
        self.kept += 0 if streams else nbytes
        self.peak = max(self.peak, self.live)

    def _run(self, kernel: Kernel, shape: Shape, args: tuple[Any, ...]) -> Handle:
        n, size = shape[0], shape[1] * shape[2].itemsize
        long = size >= row_routing.LONG_BYTES
        # Routing runs for real, as long rows are shared by it and not copied.
        if long and kernel in (row_routing.pick, row_routing.gather, row_routing.join):
            return Handle(*shape, kernel(*map(symbolic, args)))
        # The audit adds to its sum in place, without new memory.
        if kernel in (audit.add_levels, audit.add_noisy_levels) and isinstance(args[0], Handle):
            return Handle(*shape, args[0].content)
        # Sealed and opened long rows are separate arrays, so that each is released on its own.
        if long and kernel in (keys.seal, keys.open_):
            return Handle(*shape, [Token(self, size, size, True) for _ in range(n)])
        # One token n times: rows of one array are freed together, with the last of them.
        return Handle(*shape, [Token(self, size, n * size, kernel in (mds.encode, prg.expand))] * n)
