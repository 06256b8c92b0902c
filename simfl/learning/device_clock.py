"""Time of a learner's work: CPU time of the calling thread, and on a device the time of its kernels.

Invariant: no time is counted twice (`tests/learning/test_device_clock.py`). While kernels run on a device,
the time from their launch to their completion counts, and not the CPU time of the thread that launches them
and waits. Otherwise the thread's CPU time counts.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol


class Timer:
    """The time of work on the CPU: the CPU time of the calling thread."""

    described = "CPU time"
    """Its definition, for reports."""

    def now_ns(self) -> int:
        """Return the nanoseconds of work so far."""
        return time.thread_time_ns()

    def kernels(self) -> AbstractContextManager[None]:
        """Return a context whose time counts as the device's; for a CPU it is CPU time as elsewhere."""
        return nullcontext()

    def amid_kernels_ns(self) -> int:
        """Return `now_ns` within `kernels`, once all launched kernels are completed."""
        return self.now_ns()


class Events(Protocol):
    """A device's own clock."""

    name: str
    """Name of the device."""

    def start(self) -> None:
        """Wait until the device is idle, and mark the launch of the following kernels."""

    def elapsed_ns(self) -> int:
        """Wait for the kernels launched since `start`; return the nanoseconds from launch to completion."""
        ...


class DeviceTimer(Timer, threading.local):
    """The time of work on a CPU and a device; `threading.local` gives each thread its own.

    Args:
        events: Returns the device's clock, for each thread.
    """

    def __init__(self, events: Callable[[], Events]) -> None:
        self._events = events()
        # The time of kernels so far, minus the CPU time that passed while they ran.
        self._beyond_ns = 0
        self.described = f"time of the kernels on {self._events.name} (events), else {Timer.described}"

    def now_ns(self) -> int:
        """Return the nanoseconds of work so far."""
        return time.thread_time_ns() + self._beyond_ns

    @contextmanager
    def kernels(self) -> Iterator[None]:
        """Count the time within as the device's."""
        self._launch()
        yield
        self._settle()

    def amid_kernels_ns(self) -> int:
        """Return `now_ns` within `kernels`, once all launched kernels are completed."""
        # The interval is closed, read, and opened anew, so its time is counted once.
        self._settle()
        now_ns = self.now_ns()
        self._launch()
        return now_ns

    def _launch(self) -> None:
        self._began_ns = time.thread_time_ns()
        self._events.start()

    def _settle(self) -> None:
        taken_ns = self._events.elapsed_ns()
        # The kernels' time instead of the CPU time between, during which the thread launched them and
        # waited.
        self._beyond_ns += taken_ns - (time.thread_time_ns() - self._began_ns)


class CudaEvents:
    """The clock of torch's current GPU, by its events."""

    def __init__(self) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self.name: str = torch.cuda.get_device_name()

    def start(self) -> None:
        # Kernels that were launched before must not delay the mark, and so be counted here.
        self._cuda.synchronize()
        self._launched = self._mark()

    def elapsed_ns(self) -> int:
        completed = self._mark()
        # `elapsed_time` is defined for completed events only.
        completed.synchronize()
        elapsed_ms: float = self._launched.elapsed_time(completed)
        return round(elapsed_ms * 1e6)

    def _mark(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event


def timer_of(device: str) -> Timer:
    """Return the timer of a device, "cpu" or "cuda"."""
    return Timer() if device == "cpu" else DeviceTimer(CudaEvents)
