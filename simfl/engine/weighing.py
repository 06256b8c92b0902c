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
from simfl.trace import seldom_collecting


class Token:
    """So many bytes, for as long as somebody holds it; `nbytes` is the length of a row. streams: where coded
    shares stream, it would not be held."""

    __slots__ = ("nbytes", "scale", "streams", "weight")

    def __init__(self, scale: Weighing, nbytes: int, weight: int, streams: bool) -> None:
        self.scale, self.nbytes, self.weight, self.streams = scale, nbytes, weight, streams
        scale.weigh(weight, streams)

    def __del__(self) -> None:
        self.scale.weigh(-self.weight, self.streams)

    def copy(self) -> Token:
        """The bytes of one row again."""
        return Token(self.scale, self.nbytes, self.nbytes, self.streams)


class Weighing(Ops):
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
        long = size >= rows.LONG_BYTES
        if long and kernel in (rows.pick, rows.gather, rows.join):
            return Handle(*shape, kernel(*map(_content, args)))
        if kernel is audit.add_levels and isinstance(args[0], Handle):
            return Handle(*shape, args[0].content)  # added in its place
        if long and kernel in (keys.seal, keys.open_):
            return Handle(*shape, [Token(self, size, size, True) for _ in range(n)])
        return Handle(*shape, [Token(self, size, n * size, kernel in (mds.encode, prg.expand))] * n)


class Even(Clock):
    """Every piece of work takes a millisecond: for runs of which no duration is known beforehand."""

    def work_ns(self, segment: Segment, speed: float) -> int:
        return 10**6


def weigh(session: Session) -> Weighing:
    """Run a session with `Weighing` operations to its end."""
    scale = session.ops
    assert isinstance(scale, Weighing)

    async def publish(outcome: Outcome) -> None:
        scale.rest = max(scale.rest, scale.kept)

    running = drive(session, publish, lambda: None)
    with seldom_collecting():  # there may be millions of tokens
        try:
            while True:
                running.send(None)  # it waits for nothing: there is no content
        except StopIteration:
            return scale


def _content(argument: Any) -> Any:
    if isinstance(argument, Handle):
        return argument.content
    return [_content(part) for part in argument] if isinstance(argument, list | Pile) else argument
