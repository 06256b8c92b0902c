"""Time of a learner's work: CPU time of the calling thread, and on a device the time of its kernels.

Invariant: nothing is counted twice. While kernels are at work on a device, the time from their launch to
their completion counts, and not the CPU time of the thread that launches them and waits; outside of that its
CPU time counts.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol


class Timer:
    """The time of work on the CPU: that of the calling thread."""

    described = "CPU time"

    def now_ns(self) -> int:
        return time.thread_time_ns()

    def kernels(self) -> AbstractContextManager[None]:
        """Count what is done within as work of the device, which a CPU is not."""
        return nullcontext()

    def amid_kernels_ns(self) -> int:
        """Return `now_ns` within `kernels`, once all that was launched so far is done."""
        return self.now_ns()


class Events(Protocol):
    """A device's own clock."""

    name: str

    def start(self) -> None:
        """Wait until the device has nothing to do, and mark the launch of what follows."""

    def elapsed_ns(self) -> int:
        """Wait for all that was launched since `start`; return the nanoseconds from launch to completion."""
        ...


class DeviceTimer(Timer, threading.local):
    """The time of work of which a part is done on a device; `threading.local` gives each thread its own."""

    def __init__(self, events: Callable[[], Events]) -> None:
        self._events = events()
        self._beyond_ns = 0  # what kernels took so far, less the CPU time that passed meanwhile
        self.described = f"time of the kernels on {self._events.name} (events), else {Timer.described}"

    def now_ns(self) -> int:
        return time.thread_time_ns() + self._beyond_ns

    @contextmanager
    def kernels(self) -> Iterator[None]:
        self._launch()
        yield
        self._settle()

    def amid_kernels_ns(self) -> int:
        self._settle()
        now_ns = self.now_ns()
        self._launch()
        return now_ns

    def _launch(self) -> None:
        self._began_ns = time.thread_time_ns()
        self._events.start()

    def _settle(self) -> None:
        taken_ns = self._events.elapsed_ns()
        self._beyond_ns += taken_ns - (time.thread_time_ns() - self._began_ns)


class CudaEvents:
    """The events of torch's current GPU."""

    def __init__(self) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self.name: str = torch.cuda.get_device_name()

    def start(self) -> None:
        self._cuda.synchronize()
        self._launched = self._mark()

    def elapsed_ns(self) -> int:
        completed = self._mark()
        completed.synchronize()
        elapsed_ms: float = self._launched.elapsed_time(completed)
        return round(elapsed_ms * 1e6)

    def _mark(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event


def timer_of(device: str) -> Timer:
    return Timer() if device == "cpu" else DeviceTimer(CudaEvents)
