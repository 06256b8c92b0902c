"""Made-up samples that a linear model can learn."""

from __future__ import annotations

import numpy as np

from simfl.learning.data.options import count, positive
from simfl.learning.data.split import F32, I64, DataError, Split


def synthetic(
    rng: np.random.Generator,
    shape: object = (1, 8, 8),
    classes: object = 10,
    train: object = 2000,
    test: object = 500,
    noise: object = 1.0,
) -> Split:
    """float32 x = m_y + noise e: a mean m_c for each class c and e, both standard normal in each coordinate.

    Classes are as frequent as each other, to one sample. All is drawn from `rng`. Means of two classes are
    about sqrt(2 d) apart for samples of d numbers: with the defaults nearly no sample is ambiguous, with
    noise = sqrt(d) most are.

    Raises:
        DataError: classes < 2, another count < 1, or noise that is not a finite number above 0.
    """
    if not isinstance(shape, list | tuple) or not shape:
        raise DataError(f"synthetic: shape={shape!r} must be a list of integers of at least 1")
    sizes = tuple(count(f"synthetic: shape[{i}]", size) for i, size in enumerate(shape))
    labels = count("synthetic: classes", classes, least=2)
    n_train, n_test = count("synthetic: train", train), count("synthetic: test", test)
    width = positive("synthetic: noise", noise)
    means = rng.standard_normal((labels, *sizes), np.float32)
    x_train, y_train = _samples(rng, means, n_train, width)
    x_test, y_test = _samples(rng, means, n_test, width)
    return Split(x_train, y_train, x_test, y_test, classes=labels)


def _samples(rng: np.random.Generator, means: F32, n: int, noise: float) -> tuple[F32, I64]:
    y = rng.permutation(np.arange(n) % len(means))
    x = rng.standard_normal((n, *means.shape[1:]), np.float32)
    with np.errstate(over="ignore"):  # `Split.checked` tells
        x *= noise
    x += means[y]
    return x, y
