"""Data sets that need no files of a user's: digits that come with scikit-learn, and made-up samples.

The digits are UCI's optical recognition of handwritten digits (Alpaydin, Kaynak).
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simfl.blocks import Classes, Count, Positive, Sizes
from simfl.learning.data.dataset import EVALUATED, F32, I64, Dataset, Split


class Digits(Dataset):
    """Handwritten digits, bundled: 1437 to train, 360 to test, 1x8x8, 10 classes."""

    kind: Literal["digits"] = "digits"
    size_bytes = 4 * 1_797 * 64

    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        """Return pixels scaled from 0 .. 16 to [0, 1], split 80 to 20.

        `rng` is not used: accuracies of different scenarios are on the same 360 test samples.
        """
        rows = _rows()
        images = (rows[:, :-1] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
        y = rows[:, -1].astype(np.int64)
        train, test = stratified(y, test=0.2, seed=1)
        return Split(images[train], y[train], images[test], y[test], classes=10)


def _rows() -> NDArray[np.float64]:
    """Return its file, [1797, 64 pixels and the digit]. Importing scikit-learn for it would take a second."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    rows: NDArray[np.float64] = np.loadtxt(path, delimiter=",")
    return rows


def stratified(y: I64, test: float, seed: int) -> tuple[I64, I64]:
    """Return the samples to train and to test, with as many of each class as its share, to one sample.

    The same as scikit-learn's `train_test_split(..., stratify=y, random_state=seed)`.
    """
    rng = np.random.RandomState(seed)
    _, label, sizes = np.unique(y, return_inverse=True, return_counts=True)
    n_test = int(np.ceil(test * len(y)))
    n_train = _shares(sizes, len(y) - n_test, rng)
    n_tests = _shares(sizes - n_train, n_test, rng)
    chosen: tuple[list[I64], list[I64]] = [], []
    for k, size in enumerate(sizes):
        mixed = np.flatnonzero(label == k)[rng.permutation(size)]
        chosen[0].append(mixed[: n_train[k]])
        chosen[1].append(mixed[n_train[k] : n_train[k] + n_tests[k]])
    return rng.permutation(np.concatenate(chosen[0])), rng.permutation(np.concatenate(chosen[1]))


def _shares(sizes: I64, draws: int, rng: np.random.RandomState) -> I64:
    """Return draws dealt to classes by their sizes; what rounding leaves goes to the largest remainders."""
    exact = sizes / sizes.sum() * draws
    shares = np.floor(exact)
    remainder, left = exact - shares, int(draws - shares.sum())
    for value in np.unique(remainder)[::-1]:
        if left == 0:
            break
        tied = np.flatnonzero(remainder == value)
        more = rng.choice(tied, size=min(len(tied), left), replace=False)
        shares[more] += 1
        left -= len(more)
    whole: I64 = shares.astype(np.int64)
    return whole


class Synthetic(Dataset):
    """Made-up samples of any shape: a Gaussian around each class's own mean, `noise` wide."""

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
    """The width of a class."""

    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        """Return x = m_y + noise e: a mean m_c for each class c and e, both standard normal.

        Classes are as frequent as each other, to one sample. Means of two classes are about sqrt(2 d) apart
        for samples of d numbers: with the defaults nearly no sample is ambiguous, with noise = sqrt(d) most.
        """
        means = rng.standard_normal((self.classes, *self.shape), np.float32)
        x_train, y_train = _samples(rng, means, self.train, self.noise)
        x_test, y_test = _samples(rng, means, self.test, self.noise)
        return Split(x_train, y_train, x_test, y_test, classes=self.classes)

    def bytes_needed(self, each_dealt: int, real: bool) -> int:
        values = math.prod(self.shape) * (self.classes + 2 * self.train + self.test)
        scores = 12 * min(EVALUATED, self.test) * self.classes if real else 0
        return 4 * values + 24 * (self.train + self.test) + each_dealt * self.train + scores

    def classes_expected(self) -> int:
        return self.classes


def _samples(rng: np.random.Generator, means: F32, n: int, noise: float) -> tuple[F32, I64]:
    y = rng.permutation(np.arange(n) % len(means))
    x = rng.standard_normal((n, *means.shape[1:]), np.float32)
    with np.errstate(over="ignore"):  # `Split.checked` tells
        x *= noise
    x += means[y]
    return x, y
