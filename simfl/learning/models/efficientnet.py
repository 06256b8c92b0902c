"""EfficientNet-B0: 5,288,548 parameters with a head of 1000 classes.

Tan and Le 2019, "EfficientNet: rethinking model scaling for convolutional neural networks", Table 1, trained
as in section 5.2: dropout 0.2 before the head, and stochastic depth 0.2 (Huang et al. 2016) rising linearly
with the block. Padding is symmetric, as in torchvision.
"""

from __future__ import annotations

from torch import Tensor, nn

from simfl.learning.models.batch_norm import BatchNorm
from simfl.learning.models.dropout import Dropout
from simfl.learning.models.excite import Excite
from simfl.learning.models.shapes import Shape, image

_STAGES = (
    # expansion, kernel, stride of the first block, out, blocks
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
_DEPTH = sum(stage[-1] for stage in _STAGES)
_STOCHASTIC_DEPTH = 0.2


def efficientnet_b0(input_shape: Shape, classes: int) -> nn.Module:
    """h, w >= 17: the last of five halvings would have nothing to halve in smaller images."""
    channels, _, _ = image("efficientnet_b0", input_shape, least=17)
    blocks: list[nn.Module] = []
    into = 32
    for expansion, kernel, first_stride, out, repeats in _STAGES:
        for k in range(repeats):
            stride = 1 if k else first_stride
            blocks.append(
                _Block(into, expansion, kernel, stride, out, _STOCHASTIC_DEPTH * len(blocks) / _DEPTH)
            )
            into = out
    return nn.Sequential(
        _convolution(channels, 32, 3, stride=2),
        *blocks,
        _convolution(into, 1280, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        Dropout(0.2),
        nn.Linear(1280, classes),
    )


class _Block(nn.Module):
    """The inverted bottleneck (MBConv). p: how likely a sample skips it in training, if it can."""

    def __init__(self, into: int, expansion: int, kernel: int, stride: int, out: int, p: float) -> None:
        super().__init__()
        wide = into * expansion
        self.body = nn.Sequential(
            _convolution(into, wide, 1) if expansion > 1 else nn.Identity(),
            _convolution(wide, wide, kernel, stride, groups=wide),
            Excite(wide, into // 4, nn.SiLU(), nn.Sigmoid()),
            nn.Conv2d(wide, out, 1, bias=False),
            BatchNorm(out, eps=1e-3),
        )
        self.depth = Dropout(p) if stride == 1 and into == out else None

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        if self.depth is None:
            return y
        # One draw a sample: what is dropped out is not y but its factor.
        factor: Tensor = self.depth(y.new_ones(y.shape[0], 1, 1, 1))
        return x + y * factor


def _convolution(into: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(into, out, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        BatchNorm(out, eps=1e-3),
        nn.SiLU(),
    )
