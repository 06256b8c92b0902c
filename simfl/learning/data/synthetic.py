"""Made-up samples that a linear model can learn."""

from __future__ import annotations

import numpy as np

from simfl.learning.data.split import F32, I64, Split


def synthetic(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    classes: int,
    train: int,
    test: int,
    noise: float,
) -> Split:
    """float32 x = m_y + noise e: a mean m_c for each class c and e, both standard normal in each coordinate.

    Classes are as frequent as each other, to one sample. All is drawn from `rng`. Means of two classes are
    about sqrt(2 d) apart for samples of d numbers: with the defaults nearly no sample is ambiguous, with
    noise = sqrt(d) most are.
    """
    means = rng.standard_normal((classes, *shape), np.float32)
    x_train, y_train = _samples(rng, means, train, noise)
    x_test, y_test = _samples(rng, means, test, noise)
    return Split(x_train, y_train, x_test, y_test, classes=classes)


def _samples(rng: np.random.Generator, means: F32, n: int, noise: float) -> tuple[F32, I64]:
    y = rng.permutation(np.arange(n) % len(means))
    x = rng.standard_normal((n, *means.shape[1:]), np.float32)
    with np.errstate(over="ignore"):  # `Split.checked` tells
        x *= noise
    x += means[y]
    return x, y
