from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simfl.learning.data.dataset import DataError, Split
from tests.learning.data.common import pixels, refused


def split(**changes: Any) -> Split:
    x, y = np.zeros((3, 1, 2, 2), np.float32), np.array([0, 1, 2])
    whole = Split(x, y, x[:2], y[:2], classes=3, owner=np.array([1, 0, 1]))
    return replace(whole, **changes)


def test_a_split_tells_its_shape_and_its_users() -> None:
    whole = split()
    assert whole.checked("here") is whole
    assert whole.shape == (1, 2, 2)


def filled(value: float) -> np.ndarray:
    x = np.zeros((3, 1, 2, 2), np.float32)
    x[1, 0, 1, 0] = value
    return x


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"classes": 0}, ["classes=0"]),
        ({"y_train": np.array([0, 1])}, ["x_train", "3 samples", "2 labels"]),
        ({"y_test": np.array([0, 1, 1])}, ["x_test", "2 samples", "3 labels"]),
        ({"y_train": np.array([0, 3, 1])}, ["y_train", "label 3 of sample 1", "0 .. 2"]),
        ({"y_test": np.array([0, -1])}, ["y_test", "label -1 of sample 1"]),
        ({"y_train": np.array([0, 1, 2], np.int32)}, ["y_train", "int32", "int64"]),
        ({"y_train": np.array([[0], [1], [2]])}, ["y_train", "[3, 1]"]),
        (
            {"x_train": np.zeros((0, 1, 2, 2), np.float32), "y_train": np.zeros(0, int)},
            ["x_train: no samples"],
        ),
        ({"x_test": np.zeros((0, 1, 2, 2), np.float32), "y_test": np.zeros(0, int)}, ["x_test: no samples"]),
        ({"x_train": np.zeros((3, 1, 2, 2))}, ["x_train: float64"]),
        ({"x_train": np.zeros(3, np.float32)}, ["x_train: shape [3]"]),
        ({"x_train": np.zeros((3, 0), np.float32)}, ["x_train: shape [3, 0]"]),
        ({"x_test": pixels(2, 1, 2, 3)}, ["test sample has shape [1, 2, 3]", "[1, 2, 2]"]),
        ({"x_train": filled(np.nan)}, ["x_train", "infinite or NaN"]),
        ({"x_train": filled(np.inf)}, ["x_train", "infinite or NaN"]),
        ({"x_train": filled(-np.inf)}, ["x_train", "infinite or NaN"]),
        ({"owner": np.array([0, 1])}, ["owner", "[2]", "[3]"]),
        ({"owner": np.array([0.0, 1, 0])}, ["owner", "float64"]),
        ({"owner": np.array([0, 2, 2])}, ["owner", "2 users numbered 0 .. 2", "0 .. 1"]),
        ({"owner": np.array([0, -1, 0])}, ["owner", "-1 .. 0"]),
        ({"owner": np.array([-1, 0, 2])}, ["owner", "3 users numbered -1 .. 2", "0 .. 2"]),
        ({"owner": np.array([1, 2, 2])}, ["owner", "1 .. 2"]),
    ],
    ids=str,
)
def test_invalid_splits_are_refused(changes: dict[str, Any], parts: list[str]) -> None:
    refused(lambda: split(**changes).checked("here"), "here: ", *parts)


def test_large_finite_values_are_fine() -> None:
    split(x_train=filled(3e38)).checked("here")


def test_it_is_a_value_error() -> None:
    assert issubclass(DataError, ValueError)
