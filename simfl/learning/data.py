"""Data sets, split once into training and test samples."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SPLIT_SEED = 1  # the digits' test samples are the same 360 in every scenario


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Training samples x [n, *shape] float32 with labels y [n] int64 in 0 .. classes - 1, and the same
    for the test."""

    x_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.float32]
    y_test: NDArray[np.int64]
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.x_train.shape[1:]


def digits(rng: np.random.Generator) -> Split:
    """The UCI handwritten digits that scikit-learn bundles: 1437 to train, 360 to test, shape [1, 8, 8].

    Pixels are scaled from 0 .. 16 to [0, 1]. The split is stratified, 80 to 20, by a seed fixed here:
    `rng` is not used, and accuracies of different scenarios are on the same test samples.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    images = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    x_train, x_test, y_train, y_test = train_test_split(
        images, y.astype(np.int64), test_size=0.2, stratify=y, random_state=_SPLIT_SEED
    )
    return Split(x_train, y_train, x_test, y_test, classes=10)


DATASETS: dict[str, Callable[[np.random.Generator], Split]] = {
    "digits": digits,
}
"""Loaders by the name in a scenario; `rng` is for those that draw their samples."""
