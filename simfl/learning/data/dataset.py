"""A data set: a block that loads a split, of training and test samples, checked in one place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simfl.config.kinds import KindBlock

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
Array = NDArray[Any]
Floats = NDArray[np.floating[Any]]
Dtype = type[np.floating[Any]]

EVALUATED = 512
"""Test samples that are evaluated at once."""


class DataError(ValueError):
    """A data set that does not exist or cannot be used. The message has the file, its content and the
    expected one."""


class LazyImages:
    """Images of pixels 0 .. 255, each read when it is indexed.

    Args:
        shape: Shape of all images, [n, ...].
        read: Returns an image by its number.
    """

    def __init__(self, shape: tuple[int, ...], read: Callable[[int], U8]) -> None:
        self.shape, self.dtype, self._read = shape, np.dtype(np.uint8), read

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: I64) -> U8:
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        for image, row in zip(images, rows.tolist(), strict=True):
            image[:] = self._read(row)
        return images


Samples = F32 | U8 | NDArray[np.signedinteger[Any]] | LazyImages
"""Samples [n, *shape]: numbers; pixels 0 .. 255, which stand for value / 255; or tokens, integers from 0
(int16, int32, int64) that a model embeds."""


# Without `eq`: arrays have no single truth value, so splits are compared by identity.
@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Training and test samples. Arrays are shared, and not copied: do not write to them."""

    x_train: Samples
    """Training samples [n, *shape]."""
    y_train: I64
    """Their labels [n], 0 .. classes - 1."""
    x_test: Samples
    """Test samples [m, *shape]."""
    y_test: I64
    """Their labels [m]."""
    classes: int
    """Number of labels."""
    owner: I64 | None = None
    """Natural user of each training sample [n], 0 .. writers - 1, such as a FEMNIST sample's writer; None
    without."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample."""
        return tuple(self.x_train.shape[1:])

    @property
    def tokens(self) -> bool:
        """True if samples are integers that a model embeds, such as characters."""
        return np.issubdtype(self.x_train.dtype, np.signedinteger)

    @property
    def nbytes(self) -> int:
        """Bytes of its samples in memory, without images that are read lazily."""
        return sum(x.nbytes for x in (self.x_train, self.x_test) if isinstance(x, np.ndarray))

    def checked(self, where: str) -> Split:
        """Return the split itself after a check.

        Args:
            where: Place of the data, for messages.

        Raises:
            DataError: A shape, type or label is wrong, a number is not finite, or there are no samples.
        """
        if self.classes < 1:
            raise DataError(f"{where}: classes={self.classes} must be at least 1")
        _check_side(f"{where}: x_train", self.x_train, f"{where}: y_train", self.y_train, self.classes)
        _check_side(f"{where}: x_test", self.x_test, f"{where}: y_test", self.y_test, self.classes)
        train, test = list(self.x_train.shape[1:]), list(self.x_test.shape[1:])
        # A model is built for the shape of training samples.
        if test != train:
            raise DataError(f"{where}: a test sample has shape {test}, a training sample {train}")
        if np.issubdtype(self.x_test.dtype, np.signedinteger) != self.tokens:
            raise DataError(f"{where}: x_test is {self.x_test.dtype}, and x_train {self.x_train.dtype}")
        if self.owner is not None:
            _check_owner(f"{where}: owner", self.owner, len(self.y_train))
        return self


def check_labels(where: str, y: I64, classes: int) -> None:
    """Check that labels [n] are in 0 .. classes - 1.

    Raises:
        DataError: A label is not; the message begins with `where`.
    """
    wrong = np.flatnonzero((y < 0) | (y >= classes))
    if wrong.size:
        sample = wrong[0]
        raise DataError(f"{where}: label {y[sample]} of sample {sample} is not in 0 .. {classes - 1}")


def _check_side(place: str, x: Samples, labels: str, y: I64, classes: int) -> None:
    # From the cheapest check to the dearest: the values are looked at last.
    if len(x.shape) < 2 or 0 in x.shape[1:]:
        raise DataError(f"{place}: shape {list(x.shape)}, expected [samples, *shape of one]")
    if x.dtype not in (np.float32, np.uint8, np.int16, np.int32, np.int64):
        raise DataError(f"{place}: {x.dtype}, expected float32, uint8, or int16, int32 or int64 of tokens")
    if y.ndim != 1 or y.dtype != np.int64:
        raise DataError(f"{labels}: {y.dtype} of shape {list(y.shape)}, expected int64 [samples]")
    if len(x) != len(y):
        raise DataError(f"{place}: {len(x)} samples, but {len(y)} labels")
    if not len(x):
        raise DataError(f"{place}: no samples, expected at least one")
    check_labels(labels, y, classes)
    # Lazy images are pixels, so each of their values is valid; they are read one by one later.
    if isinstance(x, LazyImages):
        return
    if np.issubdtype(x.dtype, np.signedinteger) and x.min() < 0:
        raise DataError(f"{place}: token {x.min()}, expected none below 0")
    # An extreme is infinite or NaN if any number is, and needs no array of flags as large as the data.
    if not (np.isfinite(x.min()) and np.isfinite(x.max())):
        raise DataError(f"{place}: values that are infinite or NaN, expected finite numbers")


def _check_owner(place: str, owner: I64, samples: int) -> None:
    if owner.shape != (samples,) or owner.dtype != np.int64:
        raise DataError(f"{place}: {owner.dtype} of shape {list(owner.shape)}, expected int64 [{samples}]")
    users = np.unique(owner)
    if users[0] != 0 or users[-1] != len(users) - 1:
        raise DataError(
            f"{place}: {len(users)} users numbered {users[0]} .. {users[-1]}, expected 0 .. {len(users) - 1}"
        )


class Dataset(KindBlock):
    """A data set; a user-defined one needs `load` only.

    >>> class Sign(Dataset):
    ...     samples: int = 100
    ...     def load(self, rng, root):
    ...         x = rng.standard_normal((self.samples, 2), np.float32)
    ...         y = (x.sum(axis=1) > 0).astype(np.int64)
    ...         return Split(x, y, x[:10], y[:10], classes=2)
    >>> Sign().loaded(np.random.default_rng(0)).shape
    (2,)
    """

    size_bytes: ClassVar[int] = 0
    """Bytes of its samples in memory; 0 if they are unknown before it is read."""
    labels: ClassVar[int] = 10
    """Expected number of classes, before it is read."""

    @abstractmethod
    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        """Return training and test samples.

        Args:
            rng: Random numbers of samples that are drawn.
            root: `learning.data.root`, the folder of published data sets.

        Raises:
            DataError: It does not exist or cannot be used.
        """

    def loaded(self, rng: np.random.Generator, root: Path | None = None) -> Split:
        """Return the split of `load` after a check.

        Raises:
            DataError: As for `load`, or it breaks the rules of a `Split`.
        """
        split = self.load(rng, root)
        # A user-defined `load` may return anything.
        if not isinstance(split, Split):
            raise DataError(f"data set {type(self).__name__} gave {type(split).__name__}, not a Split")
        return split.checked(type(self).__name__ if self.kind in ("", "module") else self.kind)

    def bytes_needed(self, each_dealt: int, real: bool) -> int:
        """Return the bytes that it needs.

        Args:
            each_dealt: Bytes of a sample for dealing it to a user.
            real: It is evaluated too.
        """
        return self.size_bytes

    def classes_expected(self) -> int:
        """Return the expected number of classes, before it is read."""
        return self.labels
