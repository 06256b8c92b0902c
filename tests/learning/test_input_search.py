"""Searches of inputs: an update of a linear model gives its sample away exactly, x = dW / db."""

from __future__ import annotations

import numpy as np
import pytest

from simfl.learning.data.dataset import Split
from simfl.learning.input_search import InputSearch
from simfl.learning.models.registry import Cnn, Logistic
from simfl.learning.sgd import LocalSgd
from simfl.learning.trainer import Trainer

SHAPE, CLASSES = (1, 4, 4), 3


def one_sample_each(model: Logistic | Cnn) -> tuple[Split, Trainer]:
    rng = np.random.default_rng(5)
    x, y = rng.random((4, *SHAPE), np.float32), np.array([0, 1, 2, 1])
    split = Split(x, y, x, y, CLASSES)
    return split, Trainer(split, [np.array([k]) for k in range(4)], model, LocalSgd(1, 1, 0.1), "cpu")


@pytest.mark.ci
def test_linear_update_by_hand_is_the_sample() -> None:
    """The search finds the input of the closed form: row c of the update is (p_c - 1) (x, 1)."""
    split, trainer = one_sample_each(Logistic())
    weights = trainer.initial(bytes(32))
    updates = trainer.train([weights] * 4, range(4), [bytes(32)] * 4, [0] * 4).astype(np.float32)
    by_hand = np.empty((4, 16))
    for k, update in enumerate(updates):
        dW, db = update[:-CLASSES].reshape(CLASSES, 16), update[-CLASSES:]
        by_hand[k] = dW[split.y_train[k]] / db[split.y_train[k]]
    np.testing.assert_allclose(by_hand, split.x_train.reshape(4, 16), atol=1e-5)
    starts = np.random.default_rng(0).random((4, 1, *SHAPE), np.float32)
    search = InputSearch(Logistic(), SHAPE, CLASSES)
    found, cost = search.explaining(weights[0], updates, split.y_train[:, None], starts, 400, 0.1, 0.0)
    np.testing.assert_allclose(found.reshape(4, 16), by_hand, atol=5e-3)
    assert cost.max() < 1e-4


@pytest.mark.ci
def test_a_network_gives_its_sample_away_too() -> None:
    split, trainer = one_sample_each(Cnn())
    weights = trainer.initial(bytes(32))
    updates = trainer.train([weights] * 4, range(4), [bytes(32)] * 4, [0] * 4).astype(np.float32)
    starts = np.random.default_rng(0).random((4, 1, *SHAPE), np.float32)
    search = InputSearch(Cnn(), SHAPE, CLASSES)
    found, cost = search.explaining(weights[0], updates, split.y_train[:, None], starts, 300, 0.1, 0.0)
    near = np.abs(found[:, 0] - split.x_train).reshape(4, -1).max(axis=1)
    assert np.median(near) < 0.05, near
    one, other = (
        search.explaining(weights[0], updates, split.y_train[:, None], starts, 20, 0.1, 0.0)[0]
        for _ in range(2)
    )
    assert (one == other).all()
    assert (cost >= -1e-5).all()


def test_an_input_of_a_class_by_hand() -> None:
    """Class 0 looks for pixel 0 and against pixel 1; class 1 has weights of zero."""
    weights = np.zeros(2 * 4 + 2, np.float32)
    weights[:2] = 3.0, -3.0
    found = InputSearch(Logistic(), (1, 2, 2), 2).of_class(weights, 0, 60, 0.05)
    np.testing.assert_allclose(found[0], [[1, 0], [0, 0]], atol=1e-6)
    against = InputSearch(Logistic(), (1, 2, 2), 2).of_class(weights, 1, 60, 0.05)
    np.testing.assert_allclose(against[0], [[0, 1], [0, 0]], atol=1e-6)


def test_logits_are_the_trainers() -> None:
    split, trainer = one_sample_each(Cnn())
    weights = trainer.initial(bytes(32))
    z = InputSearch(Cnn(), SHAPE, CLASSES).logits(weights[0], split.x_test)
    right = (z.argmax(axis=1) == split.y_test).mean()
    assert trainer.evaluate(weights)[0, 0] == pytest.approx(right)
