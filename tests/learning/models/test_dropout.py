from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from simfl.learning.models import Shape
from simfl.learning.models.rules import Dropout, blank, dropouts
from tests.learning.models.made import made, normal


def test_nothing_is_dropped_by_default() -> None:
    x = normal(3, 4)
    assert Dropout(0.5).train()(x) is x


def test_it_is_the_formula() -> None:
    layer, x = Dropout(0.2), normal(3, 4).requires_grad_()
    layer.keep = normal(3, 4, seed=5).gt(0).float()
    y = layer(x)
    torch.testing.assert_close(y, torch.where(layer.keep.bool(), x / 0.8, 0))
    y.sum().backward()
    torch.testing.assert_close(x.grad, layer.keep / 0.8)
    layer.keep = None
    assert layer(x) is x


def test_its_mean_is_the_input() -> None:
    layer = Dropout(0.3)
    layer.keep = torch.rand(200_000, generator=torch.Generator().manual_seed(3)).ge_(0.3)
    assert layer(torch.ones(200_000)).mean().item() == pytest.approx(1, abs=0.01)


def test_each_client_keeps_its_own() -> None:
    layer, x, keep = Dropout(0.5), normal(5, 3, 4), normal(5, 3, 4, seed=5).gt(0).float()

    def dropped(x: Tensor, keep: Tensor) -> Tensor:
        layer.keep = keep
        y: Tensor = layer(x)
        return y

    torch.testing.assert_close(vmap(dropped)(x, keep), x * keep * 2)


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_probabilities(p: float) -> None:
    with pytest.raises(ValueError, match=f"p={p} must be at least 0 and below 1"):
        Dropout(p)


class Branches(nn.Module):
    """Its dropouts run in another order than they are written down in, one not at all, `again` twice."""

    def __init__(self, again: bool = False, turned: bool = False) -> None:
        super().__init__()
        self.late, self.unused, self.early = nn.Dropout(0.1), nn.Dropout(0.2), nn.Dropout(0.3)
        self.hidden, self.head = nn.Linear(6, 5), nn.Linear(5, 3)
        self.again, self.turned = again, turned

    def forward(self, x: Tensor) -> Tensor:
        x = self.early(x.T).T if self.turned else self.early(x)
        x = self.late(self.hidden(x))
        logits: Tensor = self.head(self.late(x) if self.again else x)
        return logits


def of(again: bool = False, turned: bool = False) -> list[tuple[float, Shape]]:
    module = blank(made(lambda shape, classes: Branches(again, turned), "branches"), (6,), 3)
    return [(layer.p, shape) for layer, shape in dropouts(module, (6,))]


def test_dropouts_in_the_order_of_execution() -> None:
    assert of() == [(0.3, (6,)), (0.1, (5,))]


def test_a_dropout_that_is_called_twice() -> None:
    with pytest.raises(
        ValueError, match=r"^model branches: dropout 'late' is called twice: use a layer for each"
    ):
        of(again=True)


def test_a_dropout_whose_samples_are_not_first() -> None:
    with pytest.raises(ValueError, match=r"dropout 'early' gets \[6, 2\] for 2 samples"):
        of(turned=True)
