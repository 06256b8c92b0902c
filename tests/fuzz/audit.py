"""What attempts do to files and sockets, by Python's audit events.

A scenario of a server opens and executes nothing of this machine; a command changes nothing beyond its
folder, and connects to no other machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from simfl.live.tls import is_loopback

Rule = Callable[[str, tuple[Any, ...]], None]

CHANGES = {
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
    "os.chown", "os.utime", "shutil.rmtree",
}  # fmt: skip
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
DEVICES = ("/dev/", "/proc/self/")

_rules: list[Rule] = []


@cache
def _install() -> None:
    sys.addaudithook(_hook)  # which cannot be removed


def _hook(event: str, args: tuple[Any, ...]) -> None:
    for rule in tuple(_rules):
        rule(event, args)


@contextmanager
def audited(rule: Rule) -> Iterator[None]:
    """Let a rule see each event; what it raises, the operation raises."""
    _install()
    _rules.append(rule)
    try:
        yield
    finally:
        _rules.remove(rule)


@contextmanager
def naming(word: str) -> Iterator[list[str]]:
    """Yield the list of events that name a file, or a module, with a word in its name."""
    seen: list[str] = []

    def note(event: str, args: tuple[Any, ...]) -> None:
        for given in args[:2]:
            name = getattr(given, "co_filename", given)
            if isinstance(name, str | bytes | os.PathLike) and word in os.fsdecode(name)[-500:]:
                seen.append(f"{event} {os.fsdecode(name)[-200:]}")

    with audited(note):
        yield seen


@contextmanager
def confined(folders: tuple[Path, ...], allowed: Callable[[str], bool]) -> Iterator[list[str]]:
    """Refuse to change files beyond some folders, and to connect beyond this machine; yield a list of it.

    Args:
        folders: where files may change.
        allowed: returns True for a path that is refused and not listed, as the command was asked for it.
    """
    seen: list[str] = []
    inside = tuple(f"{folder.resolve()}{os.sep}" for folder in folders)

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        paths: tuple[Any, ...] = ()
        if event == "open" and args[2] & WRITES:
            paths = args[:1]
        elif event in CHANGES:
            paths = args[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]
        elif event in ("socket.connect", "socket.bind") and isinstance(args[1], tuple):
            if not is_loopback(str(args[1][0] or "localhost")):
                seen.append(f"{event} {args[1]}")
                raise PermissionError(13, "not in an attempt")
        elif event == "socket.getaddrinfo" and not is_loopback(str(args[0] or "localhost")):
            raise PermissionError(13, "not in an attempt")
        for given in paths:
            if isinstance(given, int):
                continue
            path = os.path.realpath(os.fsdecode(given))
            if not f"{path}{os.sep}".startswith((*inside, *DEVICES)):
                if not allowed(path):
                    seen.append(f"{event} {path}")
                raise PermissionError(13, "not in an attempt", path)

    with audited(refuse):
        yield seen
