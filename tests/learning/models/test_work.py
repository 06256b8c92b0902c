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


def test_work_that_cannot_be_counted_is_an_error() -> None:
    def odd(shape: Shape, classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.PReLU(), nn.Linear(64, classes))

    known = facts(made(odd, "odd"), DIGITS, 10)
    remedy = "find the law of its training by `simfl calibrate --for`, or time it by `--clock measured`"
    why = f"model odd: the multiply-adds of a layer PReLU are not known: {remedy}"
    assert (known.macs, known.why) == (None, why)

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return linear(x, self.inner.weight, self.inner.bias)

    why = facts(made(lambda shape, classes: Around()), (4,), 3).why
    assert "layers that are not called are not known: Linear" in why
