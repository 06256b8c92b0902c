"""Folders that are made, and files that last a crash or are locked: each problem is one message."""

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any

from simfl.config.digests import Damaged, need_regular
from simfl.errors import BadInput, reason

ERRORS = {
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EROFS,
}
"""SQLite's errors that say nothing about a file's content, as those of the system."""


def reserve(folder: Path) -> Path:
    """Make the folder, or one with the first number that is free; BadInput if it cannot be made."""
    for number in count(1):
        fresh = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        try:
            fresh.parent.mkdir(parents=True, exist_ok=True)
            fresh.mkdir()  # fails if it is there, so that two runs at once get two folders
            break
        except FileExistsError:
            if not fresh.parent.is_dir():
                raise BadInput(f"{fresh.parent} is a file, not a folder") from None
        except (OSError, ValueError) as error:
            raise BadInput(f"{fresh} cannot be made: {reason(error)}") from None
    return fresh


def make(run: Path) -> list[Path]:
    """Make a folder and those above it; return those that are new or empty, the innermost first."""
    try:
        if run.exists() and not run.is_dir():
            raise BadInput(f"{run} is a file, not a folder")
        new = [folder for folder in (run, *run.parents) if not folder.exists()]
        run.mkdir(parents=True, exist_ok=True)
        return new or ([run] if not any(run.iterdir()) else [])
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        raise BadInput(f"{run} cannot be written: {reason(error)}") from None


def write(path: Path, content: bytes) -> None:
    """Write a file, and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a file that takes its place only when it is whole."""
    with atomic(path) as file:
        file.write(text)


@contextmanager
def atomic(path: Path, binary: bool = False) -> Iterator[IO[Any]]:
    """Open a file that takes its place only when it is whole; text in UTF-8, or bytes."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name:.100}.", suffix=".writing")
    how: dict[str, Any] = {"mode": "wb"} if binary else {"mode": "w", "encoding": "utf-8", "newline": ""}
    try:
        with os.fdopen(handle, **how) as file:
            yield file
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def locked(path: Path, busy: str) -> Iterator[sqlite3.Connection]:
    """Open a file of SQLite, or make an empty one, and lock it; its content is not changed.

    Raises:
        BadInput: another has its lock (`busy` is the message), it cannot be written, or is damaged (Damaged).
    """
    if path.exists():
        need_regular(path)
    with ExitStack() as stack:
        try:
            with as_system_errors(path):
                opened = sqlite3.connect(path, timeout=0, check_same_thread=False)
                base = stack.enter_context(closing(opened))
                base.execute("PRAGMA locking_mode = EXCLUSIVE")
                base.execute("BEGIN EXCLUSIVE")
                base.rollback()
        except OSError as error:
            problem = busy if error.errno == errno.EBUSY else f"{path} cannot be written: {reason(error)}"
            raise BadInput(problem) from None
        if not path.exists():  # its holder has just finished, and removed it
            raise BadInput(busy)
        yield base


@contextmanager
def as_system_errors(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as an OSError if they are the system's, and as Damaged if the file is damaged."""
    try:
        yield
    except sqlite3.Error as error:
        number = ERRORS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if number is not None:
            raise OSError(number, f"{os.strerror(number)} ({error})", str(path)) from None
        raise damaged(path, str(error)) from None


def damaged(path: Path, problem: str) -> Damaged:
    """Return the error of a file of saved rounds that is not as it was written."""
    remedy = "restore it from a copy, or run the scenario again in another folder; nothing was changed here"
    return Damaged(path, f"not as it was written: {problem}", remedy)
