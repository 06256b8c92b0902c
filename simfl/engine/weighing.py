"""What a run would hold: a shadow run whose handles weigh as much as content would.

The law: a handle's content is a token of as many bytes, shared and let go exactly as arrays are. So the most
that all tokens weigh at once is what a run in line holds, to the byte, apart from what a kernel needs while
it works and from the data set. A pool, which makes content later, holds it no longer than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simfl.crypto import audit, keys, mds, prg, rows
from simfl.engine.clock import drive
from simfl.engine.durations import Clock
from simfl.engine.session import Session
from simfl.engine.world import Outcome
from simfl.protocols.ops import Handle, Ops, Pile, Segment


class Token:
    """So many bytes, for as long as somebody holds it; `nbytes` is the length of a row."""

    __slots__ = ("nbytes", "scale", "weight")

    def __init__(self, scale: Weighing, nbytes: int, weight: int) -> None:
        self.scale, self.nbytes, self.weight = scale, nbytes, weight
        scale.live += weight
        scale.peak = max(scale.peak, scale.live)

    def __del__(self) -> None:
        self.scale.live -= self.weight

    def copy(self) -> Token:
        """The bytes of one row again."""
        return Token(self.scale, self.nbytes, self.nbytes)


class Weighing(Ops):
    """Knows lengths and counts only. peak: the most bytes that were held at once; rest: the most that were
    held when an aggregate was there.

    streaming: coded shares and masks are never held, and weigh nothing.
    """

    def __init__(self, q: int, streaming: bool = False) -> None:
        super().__init__(q)
        self.streaming = streaming
        self.live = self.peak = self.rest = 0

    def _run(self, kernel: Callable[..., Any], shape: tuple[int, int, int], args: tuple[Any, ...]) -> Handle:
        n, length, width = shape
        size = length * width
        long = size >= rows.LONG_BYTES
        if long and kernel in (rows.pick, rows.gather, rows.join):
            return Handle(*shape, kernel(*map(_content, args)))
        if kernel is audit.add_levels and isinstance(args[0], Handle):
            return Handle(*shape, args[0].content)  # added in its place
        apart = long and kernel in (keys.seal, keys.open_)
        if self.streaming and (apart or kernel in (mds.encode, prg.expand)):
            return Handle(*shape, [Token(self, size, 0)] * n)
        if apart:
            return Handle(*shape, [Token(self, size, size) for _ in range(n)])
        return Handle(*shape, [Token(self, size, n * size)] * n)


class Even(Clock):
    """Every piece of work takes a millisecond: for runs of which no duration is known beforehand."""

    def work_ns(self, segment: Segment, speed: float) -> int:
        return 10**6


def weigh(session: Session) -> Weighing:
    """Run a session with `Weighing` operations to its end."""
    scale = session.ops
    assert isinstance(scale, Weighing)

    async def publish(outcome: Outcome) -> None:
        scale.rest = max(scale.rest, scale.live)

    running = drive(session, publish, lambda: None)
    try:
        while True:
            running.send(None)  # it waits for nothing: there is no content
    except StopIteration:
        return scale


def _content(argument: Any) -> Any:
    if isinstance(argument, Handle):
        return argument.content
    return [_content(part) for part in argument] if isinstance(argument, list | Pile) else argument
