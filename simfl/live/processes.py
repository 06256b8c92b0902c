"""Processes of users, forked from one in which data, models and code are there and warm."""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from simfl.errors import BadInput
from simfl.live.real_time import run

GONE = 3
"""The exit code of users whose server is gone before the run was over."""
POLL_S = 0.02

Be = Callable[[Sequence[int]], Coroutine[Any, Any, bool]]
"""Be some users until the run is over (True), or the server is gone (False)."""


@contextmanager
def forked(be: Be, parts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Fork a process for each part of the users, and yield their numbers. At the end those that are left are
    killed."""
    pids: list[int] = []
    sys.stdout.flush()
    sys.stderr.flush()
    gc.collect()
    gc.freeze()  # or each process would look at all that is there, and copy it
    try:
        for users in parts:
            pid = os.fork()
            if pid == 0:
                _be(be, users)
            pids.append(pid)
        yield pids
    finally:
        gc.unfreeze()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def exit_codes(pids: list[int], within_s: float = float("inf")) -> set[int]:
    """Wait for processes to end, and return their exit codes; the list keeps those that are still there."""
    codes, ends = set[int](), time.monotonic() + within_s
    while pids:
        pid, status = os.waitpid(pids[0], os.WNOHANG)
        if pid:
            codes.add(os.waitstatus_to_exitcode(status))
            pids.remove(pid)
        elif time.monotonic() > ends:
            break
        else:
            time.sleep(POLL_S)
    return codes


def _be(be: Be, users: Sequence[int]) -> NoReturn:
    code = 1
    try:
        gc.disable()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that forked it ends it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = 0 if run(be(users)) else GONE
    except BadInput as problem:
        print(f"simfl: {problem}", file=sys.stderr, flush=True)
    except BaseException as problem:  # a child must never return into the parent's stack
        message = f"simfl: users {list(users)}: {type(problem).__name__}: {problem}"
        print(message, file=sys.stderr, flush=True)
    finally:
        os._exit(code)
