"""Data sets without published files: bundled digits, drawn samples, your own arrays.

The digits are the test set of UCI's optical recognition of handwritten digits (Alpaydin, Kaynak), with the
values of scikit-learn's file: 54 kB, so that no run needs that library.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfl.config.blocks import Classes, Count, Positive, Sizes
from simfl.config.texts import FileName
from simfl.config.unpacking import UnpackingError, read_npz
from simfl.learning.data.dataset import EVALUATED, F32, I64, DataError, Dataset, Split

_TO_TRAIN = 1437
"""Lines of the digits' file that are to train, the first ones; the others are to test. Their order is that of
scikit-learn's `train_test_split(..., test_size=0.2, stratify=y, random_state=1)`."""


class Digits(Dataset):
    """Handwritten digits, bundled: 1437 to train, 360 to test, 1x8x8, 10 classes."""

    kind: Literal["digits"] = "digits"
    size_bytes = 4 * 1_797 * 64

    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        """Return pixels scaled from 0 .. 16 to [0, 1], split 80 to 20.

        Nothing is drawn, so that accuracies of different scenarios are on the same 360 test samples.
        """
        rows = np.loadtxt(str(Path(__file__).with_name("digits.csv.gz")), delimiter=",", dtype=np.int64)
        # A copy, as a view of the labels would keep all rows in memory.
        x, y = (rows[:, :-1] / 16).astype(np.float32).reshape(-1, 1, 8, 8), rows[:, -1].copy()
        return Split(x[:_TO_TRAIN], y[:_TO_TRAIN], x[_TO_TRAIN:], y[_TO_TRAIN:], classes=10)


class Synthetic(Dataset):
    """Drawn samples of any shape: a Gaussian around each class's mean, `noise` wide."""

    kind: Literal["synthetic"] = "synthetic"
    shape: Sizes = (1, 8, 8)
    """The shape of a sample."""
    classes: Classes = 10
    """The number of labels."""
    train: Count = 2000
    """Training samples."""
    test: Count = 500
    """Test samples."""
    noise: Positive = 1.0
    """Standard deviation of each number within a class."""

    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        """Return x = m_y + noise e: a mean m_c for each class c and e, both standard normal.

        Sizes of classes differ by at most one sample. Means of two classes are about sqrt(2 d) apart for
        samples of d numbers: with the defaults nearly no sample is ambiguous, with noise = sqrt(d) most are.
        """
        means = rng.standard_normal((self.classes, *self.shape), np.float32)
        # Training samples are drawn before test samples, so another number of the latter changes none of
        # them.
        x_train, y_train = _drawn(rng, means, self.train, self.noise)
        x_test, y_test = _drawn(rng, means, self.test, self.noise)
        return Split(x_train, y_train, x_test, y_test, classes=self.classes)

    def bytes_needed(self, each_dealt: int, real: bool) -> int:
        values = math.prod(self.shape) * (self.classes + 2 * self.train + self.test)
        scores = 12 * min(EVALUATED, self.test) * self.classes if real else 0
        return 4 * values + 24 * (self.train + self.test) + each_dealt * self.train + scores

    def classes_expected(self) -> int:
        return self.classes


def _drawn(rng: np.random.Generator, means: F32, n: int, noise: float) -> tuple[F32, I64]:
    # Labels in turn, then mixed: sizes of classes differ by at most one.
    y = rng.permutation(np.arange(n) % len(means))
    x = rng.standard_normal((n, *means.shape[1:]), np.float32)
    # An overflow becomes infinite, which `Split.checked` refuses.
    with np.errstate(over="ignore"):
        x *= noise
    x += means[y]
    return x, y


class Npz(Dataset):
    """Your own arrays x_train, y_train, x_test, y_test (and owner, classes) of an .npz file."""

    main_key = "file"
    kind: Literal["npz"] = "npz"
    file: FileName
    """The file's path, from the scenario's folder."""

    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        """Return the arrays of a file as `numpy.savez` writes it. Other arrays are not read, and none is
        unpickled.

        x are floats, converted to float32; uint8 pixels, which stand for value / 255; or signed integers,
        tokens from 0 that the model embeds. y are integers. `owner` [n] is the natural user of each training
        sample, 0 .. writers - 1; `classes` one integer, by default the largest label + 1.
        """
        file = self.file
        try:
            arrays = read_npz(Path(file), ("x_train", "y_train", "x_test", "y_test"), ("owner", "classes"))
        except UnpackingError as error:
            raise DataError(f"{file}: {error}") from None
        y_train, y_test = (_integers(file, arrays, key, 1) for key in ("y_train", "y_test"))
        owner = _integers(file, arrays, "owner", 1) if "owner" in arrays else None
        if "classes" in arrays:
            classes = int(_integers(file, arrays, "classes", 0))
        else:
            # `initial` is for an empty array, which `checked` refuses with a better message.
            classes = 1 + max(int(y.max(initial=0)) for y in (y_train, y_test))
        x_train, x_test = (_samples(file, arrays, key) for key in ("x_train", "x_test"))
        return Split(x_train, y_train, x_test, y_test, classes, owner).checked(file)


def _integers(file: str, arrays: Mapping[str, NDArray[Any]], key: str, dimensions: int) -> I64:
    array = arrays[key]
    if array.dtype.kind not in "iu" or array.ndim != dimensions:
        raise DataError(
            f"{file}: {key} is {array.dtype} of {array.ndim} dimensions, expected integers of {dimensions}"
        )
    return array.astype(np.int64)


def _samples(file: str, arrays: Mapping[str, NDArray[Any]], key: str) -> NDArray[Any]:
    array = arrays[key]
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind == "i":
        return array.astype(np.int64)
    if array.dtype.kind != "f":
        raise DataError(
            f"{file}: {key} is {array.dtype}, expected floats, uint8 pixels or integers of tokens"
        )
    # An overflow becomes infinite, which `Split.checked` refuses.
    with np.errstate(over="ignore"):
        return array.astype(np.float32)
