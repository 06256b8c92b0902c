"""Network namespaces of a run: made by `ip`, named by this process, and removed whatever ends the run.

Their names are `simfl-PID-PART`. Namespaces of processes that have ended are removed before new ones are
made, as a process that is killed removes nothing.
"""

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simfl.errors import BadInput

NAMED = Path("/run/netns")
PREFIX = "simfl-"
TOOLS = ("ip", "tc")
ENDS = (signal.SIGINT, signal.SIGTERM)


class Namespaces:
    """The namespaces of one run, by the names of their parts."""

    def __init__(self, parts: Iterable[str]) -> None:
        self.names = {part: f"{PREFIX}{os.getpid()}-{part}" for part in parts}

    @contextmanager
    def made(self) -> Iterator[None]:
        """Make them, and remove them at the end: also after Ctrl-C, SIGTERM or a failure."""
        _check_tools()
        earlier = signal.signal(signal.SIGTERM, _leave)
        try:
            remove(name for name in _named() if _is_stale(name))
            _run(("ip", "-batch", "-"), [f"netns add {name}" for name in self.names.values()])
            yield
        finally:
            # A second Ctrl-C would leave some of them, so signals wait.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
            remove(self.names.values())
            signal.signal(signal.SIGTERM, earlier)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def ip(self, part: str, lines: Iterable[str]) -> None:
        """Run commands of `ip` in a namespace."""
        _run(("ip", "-n", self.names[part], "-batch", "-"), lines)

    def tc(self, part: str, lines: Iterable[str]) -> None:
        """Run commands of `tc` in a namespace."""
        _run(("tc", "-n", self.names[part], "-batch", "-"), lines)

    @contextmanager
    def inside(self, part: str) -> Iterator[None]:
        """Let this thread be in a namespace: its sockets and devices stay there."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            self.enter(part)
            yield
        finally:
            _setns(own)
            os.close(own)

    def enter(self, part: str) -> None:
        """Let this thread be in a namespace from now on."""
        there = os.open(NAMED / self.names[part], os.O_RDONLY)
        try:
            _setns(there)
        finally:
            os.close(there)

    def set(self, part: str, **values: object) -> None:
        """Set sysctls of net.ipv4 of a namespace."""
        with self.inside(part):
            for key, value in values.items():
                Path("/proc/sys/net/ipv4", key).write_text(f"{value}\n", encoding="ascii")


def remove(names: Iterable[str]) -> None:
    """Remove namespaces, with the links in them; those that are not there are none."""
    for name in list(names):
        if (NAMED / name).exists():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _check_tools() -> None:
    """Raise BadInput unless links can be made here."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise BadInput(f"links by the kernel: {' and '.join(missing)} of iproute2 are needed, and not found")
    if os.geteuid():
        raise BadInput("links by the kernel: only root may make network namespaces")


def _named() -> list[str]:
    return [path.name for path in NAMED.glob(f"{PREFIX}*")] if NAMED.is_dir() else []


def _is_stale(name: str) -> bool:
    """Return True for the namespace of a process that has ended."""
    pid = name.removeprefix(PREFIX).partition("-")[0]
    return pid.isdecimal() and not Path("/proc", pid).exists()


def _run(command: tuple[str, ...], lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BadInput(f"links by the kernel: {' '.join(command)}: {' '.join(done.stderr.split())}")


def _setns(fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns is of Python 3.12
    if libc.setns(fd, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _leave(number: int, frame: Any) -> None:
    """End the run as Ctrl-C does: an event loop that runs has a handler of its own, which closes in order."""
    interrupt = signal.getsignal(signal.SIGINT)
    if not callable(interrupt):  # ignored, as in a shell's background
        raise SystemExit(128 + number)
    interrupt(signal.SIGINT, frame)
