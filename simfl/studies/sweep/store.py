"""The store of a sweep: a folder for each cell, which is whole or not there.

A cell's folder is named by a hash of what decides its files: the resolved scenario, the content of the
single files that it names, and the code. Files are written to a folder of another name beside it, synced,
and renamed. Writers hold the lock, so what a killed sweep left half-written is nobody's. Of a cell's files
only `about.json` tells of the machine and the day. SHA256SUMS has the digests of the others (`digests`).
"""

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simfl.config import digests
from simfl.config.digests import SUMS, Damaged
from simfl.errors import BadInput
from simfl.runs.folder import disk

PARTIAL_PREFIX = ".writing-"  # of a folder's name until it is whole
ABOUT = "about.json"
LINKS = "points"  # the folder of links to cells, which are named by their values


class Store:
    """The cells of a sweep in `folder`/cells. Nothing is written, and no folder made, before it is locked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cells = folder / "cells"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock out other writers, and remove what a killed one left; BadInput if another sweep is at work in
        this folder, or something else is in the place of its own."""
        file = self.folder / ".lock"
        if not self.cells.is_dir() and (self.cells.exists() or self.cells.is_symlink()):
            raise BadInput(f"{self.cells} is not a folder, where cells would go: remove it")
        if file.is_symlink() or file.is_dir():  # opened, its target would be emptied
            raise BadInput(f"{file} is not a sweep's lock, an empty file: remove it")
        self.cells.mkdir(parents=True, exist_ok=True)
        remedy = "wait for it, or give another folder by --out"
        with disk.locked(file, f"{self.folder}: another sweep is at work here: {remedy}"):
            for left in self.cells.glob(f"{PARTIAL_PREFIX}*"):
                _remove(left)
            yield

    def has(self, key: str) -> bool:
        """Return True if a cell's folder exists, in whatever state."""
        folder = self.cells / key
        return folder.is_dir() and not folder.is_symlink()

    def verify(self, key: str, needed: tuple[str, ...]) -> bool:
        """Return True if a cell has these files; Damaged if it is no folder, or not as it was written."""
        folder = self.cells / key
        if not self.has(key):
            if folder.is_symlink() or folder.exists():
                raise Damaged(folder, "is a link or a file, not a folder")
            return False
        return set(needed) <= digests.check_all(folder)

    def write(self, key: str, files: Mapping[str, str], about: Mapping[str, Any]) -> None:
        """Put a cell in its place, instead of one that is there; call it with the lock held."""
        partial = Path(tempfile.mkdtemp(prefix=PARTIAL_PREFIX, dir=self.cells))
        written = datetime.now(UTC).isoformat(timespec="seconds")
        about = {**about, "machine": platform.node(), "written": written}
        for name, text in {**files, ABOUT: json.dumps(about, indent=2) + "\n"}.items():
            disk.write(partial / name, text.encode())
        disk.write(partial / SUMS, digests.manifest(partial, files).encode())
        partial.chmod(0o755)
        disk.sync(partial)
        cell, old = self.cells / key, partial.with_name(f"{partial.name}-old")
        if cell.is_symlink() or cell.exists():  # damaged, or without a file that is asked for now
            os.rename(cell, old)
        os.rename(partial, cell)
        disk.sync(self.cells)
        _remove(old)

    def link(self, names: Mapping[str, str]) -> None:
        """Write anew the links to these cells, key -> name, as far as they are there; the lock is held."""
        folder = self.folder / LINKS
        _remove(folder)
        folder.mkdir()
        for key, name in names.items():
            if self.has(key):
                (folder / name).symlink_to(Path("..") / "cells" / key, target_is_directory=True)


def _remove(path: Path) -> None:
    """Remove a file, or a folder with all in it, if there is one; of a link the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
