from typing import Any

import numpy as np
import pytest

from tests.learning.data.common import Array, load, rng


def as_bytes(seed: int, **options: Any) -> list[bytes]:
    split = load("synthetic", rng(seed), **options)
    x_train, x_test = np.asarray(split.x_train), np.asarray(split.x_test)
    return [a.tobytes() for a in (x_train, split.y_train, x_test, split.y_test)]


@pytest.mark.parametrize(
    ("options", "shape", "classes"),
    [
        ({"train": 500}, (1, 8, 8), 10),
        ({"shape": [50], "classes": 4, "noise": 2.0, "train": 500}, (50,), 4),
    ],
)
def test_a_linear_model_learns_it(options: dict[str, Any], shape: tuple[int, ...], classes: int) -> None:
    split = load("synthetic", rng(), **options)
    assert split.shape == shape
    assert split.classes == classes
    assert split.x_train.dtype == np.float32
    assert len(split.x_train) == len(split.x_test) == 500
    weights, *_ = np.linalg.lstsq(flat(split.x_train), np.eye(classes)[split.y_train], rcond=None)
    hits = (flat(split.x_test) @ weights).argmax(axis=1) == split.y_test
    assert hits.mean() > 0.9


def flat(x: object) -> Array:
    rows = np.asarray(x, np.float64).reshape(len(np.asarray(x)), -1)
    return np.hstack([rows, np.ones((len(rows), 1))])


def test_noise_hides_the_classes_in_the_end() -> None:
    split = load("synthetic", rng(), noise=100.0, train=500)
    weights, *_ = np.linalg.lstsq(flat(split.x_train), np.eye(10)[split.y_train], rcond=None)
    assert ((flat(split.x_test) @ weights).argmax(axis=1) == split.y_test).mean() < 0.3


def test_samples_are_a_mean_plus_noise_of_its_width() -> None:
    split = load("synthetic", rng(), shape=(30,), classes=3, train=3000, noise=0.5)
    x = np.asarray(split.x_train)
    means = np.stack([x[split.y_train == label].mean(axis=0) for label in range(3)])
    assert (x - means[split.y_train]).std() == pytest.approx(0.5, rel=0.02)
    assert means.std() == pytest.approx(1, rel=0.3)
    test = np.asarray(split.x_test)
    assert (test - means[split.y_test]).std() == pytest.approx(0.5, rel=0.05)


def test_classes_are_equally_frequent_and_mixed() -> None:
    split = load("synthetic", rng(), classes=7, train=100, test=20)
    assert set(np.bincount(split.y_train)) == {14, 15}
    assert set(np.bincount(split.y_test)) == {2, 3}
    assert (np.diff(split.y_train) % 7 != 1).any()


def test_it_is_drawn_from_the_seed_alone() -> None:
    assert as_bytes(1) == as_bytes(1)
    assert all(a != b for a, b in zip(as_bytes(1), as_bytes(2), strict=True))
