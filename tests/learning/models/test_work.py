"""Multiply-adds by hand."""

from __future__ import annotations

import pytest
from torch import Tensor, nn
from torch.nn.functional import linear

from simfl.learning.models import MODELS, Shape
from simfl.learning.models.facts import facts
from tests.learning.models.made import made

DIGITS = (1, 8, 8)


@pytest.mark.parametrize(
    ("name", "shape", "macs"),
    [
        ("logistic", DIGITS, 64 * 10),
        ("cnn", DIGITS, 64 * 9 * 16 + 16 * 9 * 16 * 32 + 128 * 10),
        ("cnn", (3, 4, 5), 20 * 27 * 16 + 4 * 9 * 16 * 32 + 32 * 10),
    ],
)
def test_linear_layers_and_convolutions(name: str, shape: Shape, macs: int) -> None:
    assert facts(MODELS[name](), shape, 10).macs == macs


def test_strides_groups_and_no_padding() -> None:
    def build(shape: Shape, classes: int) -> nn.Module:
        grouped = nn.Conv2d(shape[0], 8, (3, 1), stride=2, groups=2, bias=False)
        return nn.Sequential(grouped, nn.Flatten(), nn.Linear(8 * 3 * 4, classes))

    # 7 x 7 gives 3 x 4 positions of 8 channels, each over 4 / 2 channels and 3 x 1 taps.
    assert facts(made(build), (4, 7, 7), 5).macs == 3 * 4 * 8 * 2 * 3 + 96 * 5


def test_depthwise_and_normalisation() -> None:
    def build(shape: Shape, classes: int) -> nn.Module:
        depthwise = nn.Conv2d(6, 6, 5, stride=2, padding=2, groups=6)
        flat = nn.Sequential(nn.Flatten(), nn.Linear(6 * 4 * 4, classes), nn.LayerNorm(classes))
        return nn.Sequential(depthwise, nn.BatchNorm2d(6, affine=False), nn.GroupNorm(2, 6), flat)

    outputs = 6 * 4 * 4
    expected = outputs * 25 + 2 * 2 * outputs + outputs * 5 + 2 * 5
    assert facts(made(build), (6, 8, 8), 5).macs == expected


def test_a_layer_counts_as_often_as_it_is_called() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(self.inner(self.inner(x)))
            return logits

    assert facts(made(lambda shape, classes: Twice()), (4,), 3).macs == 16 + 16 + 12


def test_operations_outside_of_layers_count() -> None:
    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.slope = nn.Linear(4, 3), nn.PReLU()

        def forward(self, x: Tensor) -> Tensor:
            z = linear(self.slope(x), self.inner.weight, self.inner.bias)
            return z @ z.new_empty(3, 5) @ z.new_empty(5, 3)

    assert facts(made(lambda shape, classes: Custom()), (4,), 3).macs == 4 * 3 + 3 * 5 + 5 * 3
