"""A loss of one's own: its gradients train, whichever way, and the test reports it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from simfl.learning.data import Split
from simfl.learning.losses import CrossEntropy, Loss
from simfl.learning.models import MODELS
from simfl.learning.sgd import LocalSgd, WayName
from simfl.learning.trainer import Trainer


class Focal(Loss):
    """(1 - p)^gamma times the cross-entropy (Lin et al. 2017)."""

    gamma: float = 2.0

    def __call__(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        losses = cross_entropy(logits, y, reduction="none")
        focused: torch.Tensor = (1 - (-losses).exp()) ** self.gamma * losses
        return focused


def split(n: int = 23) -> Split:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((n, 6), np.float32), rng.integers(0, 3, n)
    return Split(x, y, x, y, 3)


def trainer(loss: Loss, way: Any = "auto", model: str = "logistic") -> Trainer:
    parts = [np.arange(0, 9), np.arange(9, 23)]
    sgd = LocalSgd(2, 4, 0.3, momentum=0.5)
    return Trainer(split(), parts, MODELS[model](), sgd, "cpu", way, np.float64, loss=loss)


def updates(made: Trainer) -> np.ndarray:
    weights = [made.initial(bytes(32))] * 2
    return made.train(weights, [0, 1], [bytes([k]) * 32 for k in (1, 2)], [0, 0])


@pytest.mark.parametrize("way", ["auto", "loop", "vectorised"])
def test_one_that_equals_cross_entropy_trains_as_it(way: WayName) -> None:
    ours = updates(trainer(CrossEntropy(), "loop"))
    np.testing.assert_allclose(updates(trainer(Focal(gamma=0.0), way)), ours, rtol=1e-9, atol=1e-12)
    assert not np.allclose(updates(trainer(Focal(gamma=2.0), way)), ours, rtol=1e-2)


def test_both_ways_of_another_loss_agree() -> None:
    alone = updates(trainer(Focal(), "loop"))
    np.testing.assert_allclose(updates(trainer(Focal(), "vectorised")), alone, rtol=1e-9, atol=1e-12)


def test_the_test_reports_it() -> None:
    made = trainer(Focal())
    weights = made.initial(bytes(32)) + np.float32(0.1)
    W, b = weights[0, :18].reshape(3, 6), weights[0, 18:]
    z, y = torch.from_numpy(split().x_test @ W.T + b).double(), torch.from_numpy(split().y_test)
    accuracy, loss = made.evaluate(weights)[0]
    assert accuracy == pytest.approx(float((z.argmax(1) == y).double().mean()))
    assert loss == pytest.approx(float(Focal()(z, y).mean()), rel=1e-5)
    assert trainer(CrossEntropy()).evaluate(weights)[0, 1] == pytest.approx(
        float(cross_entropy(z, y)), rel=1e-5
    )


def test_the_closed_form_is_of_cross_entropy() -> None:
    with pytest.raises(ValueError, match=r"closed_form is for .* with a loss other than cross_entropy"):
        trainer(Focal(), "closed_form")
    assert trainer(CrossEntropy()).way.name == "closed_form"
    assert trainer(Focal()).way.name == "loop"
    assert trainer(Focal()).beyond_attacks == "its loss is not cross-entropy"
