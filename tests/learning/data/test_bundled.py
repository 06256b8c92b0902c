from hashlib import sha256

import numpy as np
import pytest

from simfl.learning.data.unpublished import Digits

# scikit-learn is imported where it is the oracle: it takes a second and a half, and all workers collect.


def test_digits_are_split_once_for_all() -> None:
    split = Digits().loaded(np.random.default_rng(0))
    other = Digits().loaded(np.random.default_rng(1))
    assert split.x_train.shape == (1437, 1, 8, 8)
    assert split.x_test.shape == (360, 1, 8, 8)
    assert split.shape == (1, 8, 8)
    assert split.classes == 10
    assert split.owner is None
    assert isinstance(split.x_train, np.ndarray)
    assert isinstance(split.x_test, np.ndarray)
    assert isinstance(other.x_test, np.ndarray)
    assert split.x_train.dtype == split.x_test.dtype == np.float32
    assert split.y_train.dtype == split.y_test.dtype == np.int64
    assert split.x_train.min() == 0
    assert split.x_train.max() == 1
    np.testing.assert_array_equal(split.x_test, other.x_test)
    # Golden: scikit-learn's split must not drift unnoticed.
    assert sha256(split.y_test.tobytes()).hexdigest()[:16] == "35bc1578c7e36994"
    assert sha256(split.x_test.tobytes()).hexdigest()[:16] == "0f898e76e4c59673"


def test_the_split_is_stratified() -> None:
    split = Digits().loaded(np.random.default_rng(0))
    counts = np.bincount(split.y_test, minlength=10)
    assert counts.min() >= 35
    assert counts.max() <= 37


@pytest.mark.ci
def test_the_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    split = Digits().loaded(np.random.default_rng(0))
    images = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    theirs = train_test_split(images, y, test_size=0.2, stratify=y, random_state=1)
    for mine, other in zip((split.x_train, split.x_test, split.y_train, split.y_test), theirs, strict=True):
        np.testing.assert_array_equal(mine, other)
