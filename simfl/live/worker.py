"""The thread in which the users of a process train, beside the one that hears messages.

It is one for all of them, as several would fight over the interpreter, and it goes behind the other one. A
training has all the time of its slow device, and a message has none: where both had the same priority, a
message waited until the training had used up its slice of a core.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

NICE = 10


def cores() -> int:
    """Return the cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


async def started(first: Callable[[], None]) -> Executor:
    """Return the thread when it has done `first`, as some of what libraries remember they remember for a
    thread."""
    worker = ThreadPoolExecutor(1, "training", step_back)
    await asyncio.get_running_loop().run_in_executor(worker, first)
    return worker


def step_back() -> None:
    """Let this thread go behind others of its process."""
    if sys.platform == "linux":  # elsewhere a priority is the whole process's
        level = os.sched_getparam(0).sched_priority
        if level:  # of a run in real-time priority
            policy = os.sched_getscheduler(0) if level > 1 else os.SCHED_OTHER
            os.sched_setscheduler(0, policy, os.sched_param(level - 1))
        else:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
