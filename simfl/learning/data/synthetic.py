"""Made-up samples that a linear model can learn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np

from simfl.blocks import Classes, Count, Positive, Sizes
from simfl.learning.data.dataset import Dataset
from simfl.learning.data.split import EVALUATED, F32, I64, Split


class Synthetic(Dataset):
    """Made-up samples of any shape: a Gaussian around each class's own mean, `noise` wide."""

    kind: Literal["synthetic"] = "synthetic"
    published = "drawn by the scenario's seed"
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
