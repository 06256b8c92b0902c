"""Published data sets: where their files lie, and what is in them."""

import gzip
import os
import zlib
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

import numpy as np

from simfl.config.unpacking import UnpackingError, most_bytes, too_large
from simfl.learning.data.dataset import DataError, Dataset, Split

ROOT_VARIABLE = "SIMFL_DATA"
_GZIP = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 20
_LISTED = 5


class Published(Dataset):
    """Files that somebody published, in a folder of the data set's name or in the root itself."""

    published: ClassVar[str]
    """The name of its source."""
    inner: ClassVar[tuple[str, ...]] = ()
    """Folders that its archive unpacks to."""

    @abstractmethod
    def read(self, folders: list[Path]) -> Split:
        """Return the content of the first of these folders that has any; DataError if it is incomplete."""

    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        """Return what is read from `root`, or without one from the environment's SIMFL_DATA."""
        given = root if root is not None else os.environ.get(ROOT_VARIABLE)
        if not given:
            raise DataError(
                f"{self.kind} is read from files: set `data.root` (learning.data.root in a scenario) or, in "
                f"the environment, {ROOT_VARIABLE} to their folder; published as {self.published}"
            )
        folder = Path(given).expanduser()
        if not folder.is_dir():
            origin = "data.root" if root is not None else ROOT_VARIABLE
            raise DataError(f"{self.kind}: {origin} {folder} is not a folder; published as {self.published}")
        return self.read([outer / i for outer in (folder / self.kind, folder) for i in (*self.inner, ".")])

    def files(self, folders: list[Path], *wanted: tuple[str, ...]) -> list[list[Path]]:
        """Return for each of `wanted` the sorted files of the first of its spellings (or patterns) with any.

        All are of one folder, the first that has any: sets that name their files alike are not mixed.
        DataError if there is no such folder, or it has not all.
        """
        for folder in folders:
            held = [_held(folder, spellings) for spellings in wanted]
            if all(held):
                return held
            if any(held):
                lacking = [s[0] for s, paths in zip(wanted, held, strict=True) if not paths]
                raise self.missing(lacking, f"{folder}, where the rest is")
        raise self.missing([s[0] for s in wanted], " or ".join(str(f) for f in dict.fromkeys(folders)))

    def missing(self, names: list[str], where: str) -> DataError:
        """Return the error that these files are not there."""
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        listed = ", ".join(names[:_LISTED]) + more
        return DataError(f"{self.kind}: {listed} not found in {where}; published as {self.published}")


def _held(folder: Path, spellings: tuple[str, ...]) -> list[Path]:
    found = (sorted(folder.glob(spelling)) for spelling in spellings)
    return next((paths for paths in found if paths), [])


def read(path: Path) -> bytearray:
    """Return a file's bytes, writable, unzipped. DataError if it is missing, empty, corrupt or too large."""
    content = bytearray()
    try:
        most = most_bytes()
        with path.open("rb") as raw:
            zipped = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if zipped else raw as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    content += chunk
                    if len(content) > most:
                        raise too_large(most)
    except UnpackingError as error:
        raise DataError(f"{path}: {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: a corrupt gzip file: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not content:
        raise DataError(f"{path}: empty")
    return content


def decoded(path: Path) -> str:
    """Return a file's text, UTF-8 with or without a byte order mark. DataError as of `read`."""
    try:
        return read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from None
