"""The digits that come with scikit-learn."""

from __future__ import annotations

import numpy as np

from simfl.learning.data.split import Split

_SPLIT_SEED = 1  # the digits' test samples are the same 360 in every scenario


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
