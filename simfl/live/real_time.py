"""Real time in place of virtual: the session's environment, carried out by an asyncio loop.

A session asks for calls at times and reads `now`. Here `now` is the machine's monotonic clock since the run's
beginning, which all processes of a machine share. A call that is due is made at once, and none is made early.
"""

import asyncio
import select
import selectors
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, TypeVar

import simpy
from simpy.events import NORMAL

from simfl.engine.environment import Environment
from simfl.virtual_time import NS

T = TypeVar("T")
SLACK = Path("/proc/self/timerslack_ns")
"""The nanoseconds by which Linux may let a thread sleep too long."""
FINE_NS = 250_000
"""A nearer time is waited for in sleep: an event loop takes as long to wake up."""
SWITCH_S = 0.0005
"""So long another thread may keep the interpreter from the event loop's, a tenth of what Python grants."""


class FineSelector(selectors.DefaultSelector):
    """The platform's selector, with timeouts of microseconds: epoll rounds its own up to milliseconds."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            select.select([self], [], [], timeout)
            timeout = 0
        return super().select(timeout)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run it in an event loop whose timers are fine, and which other threads do not hold up."""
    loop = partial(asyncio.SelectorEventLoop, FineSelector())
    with _punctual(), asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)


@contextmanager
def _punctual() -> Iterator[None]:
    """Let this thread have the interpreter soon, and let Linux wake it within less than its usual 50 us."""
    switch_s, slack_ns = sys.getswitchinterval(), SLACK.read_text() if SLACK.exists() else ""
    sys.setswitchinterval(SWITCH_S)
    if slack_ns:
        SLACK.write_text("1")
    try:
        yield
    finally:
        sys.setswitchinterval(switch_s)
        if slack_ns:
            SLACK.write_text(slack_ns)


class RealTime(Environment):
    """The clock stands at 0 until the run begins.

    Attributes:
        origin: Of the machine's monotonic clock, the nanoseconds at which the run begins; None outside of it.
        failed: Set to the error that ended the session.
    """

    def __init__(self) -> None:
        super().__init__()
        self.origin: int | None = None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, origin: int) -> None:
        """Begin at a time of the machine's monotonic clock, in nanoseconds, to come or past."""
        self.origin = origin
        self.run_due()

    def call_at(self, when_ns: int, then: Callable[[], None]) -> None:
        heappush(self._calls, (when_ns, NORMAL, next(self._eid), then))  # in the past: as soon as can be

    def call_external(self, then: Callable[[], None]) -> None:
        """Call `then` now, for an event from outside of the session."""
        if self.origin is not None:
            self._look(self.origin)
        self._guarded(then)
        self.run_due()

    def run_due(self) -> None:
        """Do all that is due, and come back when the next is."""
        if self.origin is not None:
            self._guarded(self._do_due)

    def stop(self) -> None:
        """Do nothing more."""
        self.origin = None
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, origin: int) -> int:
        """Read the clock; return the nanoseconds since the origin, below 0 before it."""
        since = time.monotonic_ns() - origin
        self._now = self.now = max(self.now, since)  # SimPy counts a process's timeouts from `_now`
        return since

    def _guarded(self, then: Callable[[], None]) -> None:
        try:
            then()
        except Exception as error:
            if not self.failed.done():
                self.failed.set_exception(error)
            self.stop()

    def _do_due(self) -> None:
        while self.origin is not None:
            if self._soon:  # follows from what happened now: at the same time
                self._soon.popleft()()
                continue
            calls, queue = self._calls, self._queue
            wait_ns = self.peek() - self._look(self.origin)
            if wait_ns > FINE_NS:
                self._sleep(wait_ns)
                return
            if wait_ns > 0:
                time.sleep(wait_ns / NS)
            elif calls and (not queue or calls[0][:3] < queue[0][:3]):
                heappop(calls)[3]()
            else:
                simpy.Environment.step(self)

    def _sleep(self, wait_ns: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if wait_ns < float("inf"):
            self._timer = asyncio.get_running_loop().call_later((wait_ns - FINE_NS) / NS, self.run_due)


async def wait_until(
    changed: asyncio.Event,
    failed: asyncio.Future[None],
    reached: Callable[[], bool],
    within_s: float | None = None,
) -> bool:
    """Wait until `reached`, which is called whenever `changed` is set; False if it is not in time.

    The error of `failed` is raised.
    """
    ends = None if within_s is None else time.monotonic() + within_s
    while not reached():
        changed.clear()
        left_s = None if ends is None else ends - time.monotonic()
        if not await either(changed, failed, left_s):
            return False
    return True


async def either(event: asyncio.Event, failed: asyncio.Future[None], within_s: float | None = None) -> bool:
    """Wait for an event; False if it does not come in time. The error of `failed` is raised."""
    waiting: asyncio.Future[Any] = asyncio.ensure_future(event.wait())
    done, _ = await asyncio.wait({waiting, failed}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if failed in done:
        failed.result()
    return bool(done)
