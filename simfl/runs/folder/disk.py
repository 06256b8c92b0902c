"""Folders and files: created, written whole or not at all, and locked. Each problem is one message."""

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
"""Errors of SQLite that the system causes, and the system's number of each; others mean a damaged file."""


def reserve(folder: Path) -> Path:
    """Create a folder, or one of that name with the first free number behind it.

    Raises:
        BadInput: It cannot be created.
    """
    for number in count(1):
        fresh = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        try:
            fresh.parent.mkdir(parents=True, exist_ok=True)
            # This fails if the folder exists, so two runs at once get two folders
            # (`test_two_runs_at_once_get_two_folders`).
            fresh.mkdir()
            break
        except FileExistsError:
            if not fresh.parent.is_dir():
                raise BadInput(f"{fresh.parent} is a file, not a folder") from None
        except (OSError, ValueError) as error:
            raise BadInput(f"{fresh} cannot be made: {reason(error)}") from None
    return fresh


def make(run: Path) -> list[Path]:
    """Create a folder and its parents; return the new ones, the innermost first, or itself if it is empty.

    Raises:
        BadInput: It is a file, or cannot be written.
    """
    try:
        new = [folder for folder in (run, *run.parents) if not folder.exists()]
        run.mkdir(parents=True, exist_ok=True)
        return new or ([run] if not any(run.iterdir()) else [])
    except FileExistsError:
        raise BadInput(f"{run} is a file, not a folder") from None
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
    """Write a text file that appears only when it is complete."""
    with atomic(path) as file:
        file.write(text)


@contextmanager
def atomic(path: Path, binary: bool = False) -> Iterator[IO[Any]]:
    """Open a file that appears only when it is complete: text in UTF-8, or bytes.

    Renaming replaces a file in one step, so a kill leaves the old content or the new, and a file `.*.writing`
    (`test_half_written_files_of_a_kill_are_removed`).
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name:.100}.", suffix=".writing")
    mode: dict[str, Any] = {"mode": "wb"} if binary else {"mode": "w", "encoding": "utf-8", "newline": ""}
    try:
        with os.fdopen(handle, **mode) as file:
            yield file
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def locked(path: Path, busy: str) -> Iterator[sqlite3.Connection]:
    """Open a file of SQLite, or create an empty one, and lock it; its content is not changed.

    The lock is the system's, so it ends with the process that holds it, also with a killed one.

    Args:
        path: The file.
        busy: The message if another process holds the lock.

    Raises:
        BadInput: Another process holds its lock, or it cannot be written.
        Damaged: It is no file of SQLite.
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
        # Another run may have finished since the file was opened, and removed it.
        if not path.exists():
            raise BadInput(busy)
        yield base


@contextmanager
def as_system_errors(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as an OSError if the system caused them, and else as Damaged."""
    try:
        yield
    except sqlite3.Error as error:
        number = ERRORS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if number is not None:
            raise OSError(number, f"{os.strerror(number)} ({error})", str(path)) from None
        raise damaged(path, str(error)) from None


def damaged(path: Path, problem: str) -> Damaged:
    """Return the error of a file of saved rounds whose content was changed."""
    remedy = "restore it from a copy, or run the scenario again in another folder; nothing was changed here"
    return Damaged(path, f"not as it was written: {problem}", remedy)
