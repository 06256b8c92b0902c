"""What a data set is: a block that loads a split."""

from __future__ import annotations

import os
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

import numpy as np

from simfl.kinds import Choice
from simfl.learning.data.files import Places
from simfl.learning.data.split import DataError, Split

ROOT_VARIABLE = "SIMFL_DATA"


class Dataset(Choice):
    """A data set; `load` is all that one of your own needs.

    >>> class Sign(Dataset):
    ...     samples: int = 100
    ...     def load(self, rng, root):
    ...         x = rng.standard_normal((self.samples, 2), np.float32)
    ...         y = (x.sum(axis=1) > 0).astype(np.int64)
    ...         return Split(x, y, x[:10], y[:10], classes=2)
    >>> Sign().loaded(np.random.default_rng(0)).shape
    (2,)
    """

    published: ClassVar[str] = "a file of your own"
    """Where it comes from, by name."""
    size_bytes: ClassVar[int] = 0
    """Bytes of its samples in memory, where they are the same everywhere; else known once it is read."""
    labels: ClassVar[int] = 10
    """The number of classes, about, before it is read."""

    @abstractmethod
    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        """Return training and test samples, of one class each.

        Args:
            rng: for samples that are drawn; the stream of the scenario's data.
            root: `learning.data.root`, the folder in which published ones lie.

        Raises:
            DataError: it is not there, or cannot be used.
        """

    def loaded(self, rng: np.random.Generator, root: Path | None = None) -> Split:
        """Return what `load` does, checked. DataError if it breaks the rules of a `Split`."""
        split = self.load(rng, root)
        if not isinstance(split, Split):
            raise DataError(f"data set {type(self).__name__} gave {type(split).__name__}, not a Split")
        return split.checked(type(self).__name__ if self.kind in ("", "module") else self.kind)

    def bytes_needed(self, each_dealt: int, real: bool) -> int:
        """Return what it takes while it is made and dealt out (each_dealt: bytes a sample), and a pass of
        evaluation where training is real."""
        return self.size_bytes

    def classes_expected(self) -> int:
        """Return the number of classes, about, before it is read."""
        return self.labels


class Published(Dataset):
    """Files that somebody published, in a folder of the data set's name or in the root itself."""

    @abstractmethod
    def read(self, places: Places) -> Split:
        """Return what the files hold. DataError if one is missing or malformed."""

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
        return self.read(Places(self.kind, self.published, (folder / self.kind, folder)))
