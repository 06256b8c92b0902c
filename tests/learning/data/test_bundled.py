from hashlib import sha256

import numpy as np

from simfl.learning.data import digits, load


def test_digits_are_split_once_for_all() -> None:
    split = load("digits", np.random.default_rng(0))
    other = digits(np.random.default_rng(1))
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
    split = digits(np.random.default_rng(0))
    counts = np.bincount(split.y_test, minlength=10)
    assert counts.min() >= 35
    assert counts.max() <= 37
