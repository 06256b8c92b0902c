"""MobileNetV3 small in FedML's variant: 3,111,462 parameters with a head of 1000 classes.

Howard et al. 2019, "Searching for MobileNetV3", Table 2. FedML's variant, whose parameters LightSecAgg
counts, differs: each row expands, the activation follows the pointwise convolution instead of the depthwise
one, squeezing is to a quarter, and the convolutions beside the expanding ones have biases.
"""

from __future__ import annotations

from torch import Tensor, nn

from simfl.learning.models.batch_norm import BatchNorm
from simfl.learning.models.excite import Excite
from simfl.learning.models.shapes import Shape, image

_ROWS = (
    # in, out, kernel, stride, squeeze and excite, expanded, activation
    (16, 16, 3, 2, True, 16, nn.ReLU),
    (16, 24, 3, 2, False, 72, nn.ReLU),
    (24, 24, 3, 1, False, 88, nn.ReLU),
    (24, 40, 5, 2, True, 96, nn.ReLU),
    (40, 40, 5, 1, True, 240, nn.ReLU),
    (40, 40, 5, 1, True, 240, nn.ReLU),
    (40, 48, 5, 1, True, 120, nn.Hardswish),
    (48, 48, 5, 1, True, 144, nn.Hardswish),
    (48, 96, 5, 2, True, 288, nn.Hardswish),
    (96, 96, 5, 1, True, 576, nn.Hardswish),
    (96, 96, 5, 1, True, 576, nn.Hardswish),
)


def mobilenet_v3(input_shape: Shape, classes: int) -> nn.Module:
    """h, w >= 17: the last of five halvings would have nothing to halve in smaller images."""
    channels, _, _ = image("mobilenet_v3", input_shape, least=17)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(channels, 16, 3, stride=2, padding=1), BatchNorm(16), nn.Hardswish()),
        nn.Sequential(*(_Row(*row) for row in _ROWS)),
        nn.Sequential(nn.Conv2d(96, 576, 1), _excite(576), BatchNorm(576), nn.Hardswish()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Sequential(nn.Linear(576, 1280), nn.Hardswish(), nn.Linear(1280, classes)),
    )


class _Row(nn.Module):
    def __init__(
        self, into: int, out: int, kernel: int, stride: int, excite: bool, wide: int, act: type[nn.Module]
    ) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(into, wide, 1, bias=False),
            BatchNorm(wide),
            act(),
            nn.Conv2d(wide, wide, kernel, stride, padding=kernel // 2, groups=wide),
            BatchNorm(wide),
            _excite(wide) if excite else nn.Identity(),
            nn.Conv2d(wide, out, 1),
            BatchNorm(out),
            act(),
        )
        self.residual = stride == 1 and into == out

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.residual else y


def _excite(channels: int) -> Excite:
    return Excite(channels, channels // 4, nn.ReLU(), nn.Hardsigmoid())
