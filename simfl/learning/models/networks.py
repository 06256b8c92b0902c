"""The networks of `registry` that are more than a chain of layers: inverted bottlenecks, residual blocks, an
LSTM.

MobileNetV3 and EfficientNet are chains of inverted bottlenecks. Such a bottleneck expands the channels,
convolves each of them alone, weights them (squeeze and excitation) and projects them back. ResNet-18 has four
stages of two residual blocks. All three halve the sides of an image five times: below 17 pixels the last time
has nothing to halve, so `registry` refuses smaller images.
"""

from torch import Tensor, nn

_MOBILENET = (
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
_EFFICIENTNET = (
    # expansion, kernel, stride of the first block, out, blocks
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
_STOCHASTIC_DEPTH = 0.2
"""Probability that a sample skips the last block."""


def mobilenet_v3(channels: int, classes: int) -> nn.Module:
    """Return MobileNetV3 small in FedML's variant, for images of `channels` channels."""
    blocks = []
    for into, out, kernel, stride, excite, wide, act in _MOBILENET:
        body = [
            *_normed(nn.Conv2d(into, wide, 1, bias=False)),
            act(),
            # A group for each channel: the depthwise convolution. Half a kernel of padding keeps the sides,
            # before the stride.
            *_normed(nn.Conv2d(wide, wide, kernel, stride, padding=kernel // 2, groups=wide)),
            _Excite(wide, wide // 4, nn.ReLU(), nn.Hardsigmoid()) if excite else nn.Identity(),
            *_normed(nn.Conv2d(wide, out, 1)),
            act(),
        ]
        blocks.append(_Bottleneck(body, residual=stride == 1 and into == out))
    return nn.Sequential(
        *_normed(nn.Conv2d(channels, 16, 3, stride=2, padding=1)),
        nn.Hardswish(),
        *blocks,
        nn.Conv2d(96, 576, 1),
        _Excite(576, 576 // 4, nn.ReLU(), nn.Hardsigmoid()),
        nn.BatchNorm2d(576),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(576, 1280),
        nn.Hardswish(),
        nn.Linear(1280, classes),
    )


def efficientnet_b0(channels: int, classes: int) -> nn.Module:
    """Return EfficientNet-B0, for images of `channels` channels."""
    depth = sum(repeats for *_, repeats in _EFFICIENTNET)
    blocks: list[nn.Module] = []
    into = 32
    for expansion, kernel, first_stride, out, repeats in _EFFICIENTNET:
        for repeat in range(repeats):
            wide, stride = into * expansion, 1 if repeat else first_stride
            body = [
                *(_activated(into, wide, 1) if expansion > 1 else ()),
                *_activated(wide, wide, kernel, stride, groups=wide),
                _Excite(wide, into // 4, nn.SiLU(), nn.Sigmoid()),
                *_normed(nn.Conv2d(wide, out, 1, bias=False), eps=1e-3),
            ]
            # From 0 at the first block, linear in the block's number (Huang et al. 2016).
            skipped = _STOCHASTIC_DEPTH * len(blocks) / depth
            blocks.append(_Bottleneck(body, stride == 1 and into == out, skipped))
            into = out
    return nn.Sequential(
        *_activated(channels, 32, 3, stride=2),
        *blocks,
        *_activated(into, 1280, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(1280, classes),
    )


def _activated(into: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(into, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [*_normed(convolution, eps=1e-3), nn.SiLU()]


def _normed(convolution: nn.Conv2d, eps: float = 1e-5) -> list[nn.Module]:
    return [convolution, nn.BatchNorm2d(convolution.out_channels, eps)]


class _Bottleneck(nn.Module):
    """x + body(x), or body(x) alone.

    Args:
        body: Layers.
        residual: x is added.
        skipped: Probability that a sample skips the body in training (stochastic depth).
    """

    def __init__(self, body: list[nn.Module], residual: bool, skipped: float = 0.0) -> None:
        super().__init__()
        self.body, self.residual = nn.Sequential(*body), residual
        # Without a residual nothing would be left of a sample that skips the body.
        self.depth = nn.Dropout(skipped) if residual and skipped else None

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        # One draw for each sample: the dropout is of a factor on y, and not of y's elements.
        if self.depth is not None:
            y = y * self.depth(y.new_ones(y.shape[0], 1, 1, 1))
        return x + y if self.residual else y


class _Excite(nn.Module):
    """Squeeze and excitation: x s with s = gate(W2 act(W1 mean(x) + b1) + b2) (Hu et al. 2018, eqs. 2-4)."""

    def __init__(self, channels: int, squeezed: int, act: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.scale = nn.Sequential(nn.Linear(channels, squeezed), act, nn.Linear(squeezed, channels), gate)

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.scale(x.mean((2, 3)))
        return x * s[:, :, None, None]


_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels of each stage, and the stride of its first block."""

_GROUPS = 2


def resnet18_gn(channels: int, classes: int) -> nn.Module:
    """Return ResNet-18 with group norm, for images of `channels` channels."""
    blocks: list[nn.Module] = []
    into = 64
    for out, first_stride in _STAGES:
        blocks += [ResidualBlock(into, out, first_stride), ResidualBlock(out, out, 1)]
        into = out
    return nn.Sequential(
        *_group_normed(channels, 64, kernel=7, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(into, classes),
    )


def _group_normed(into: int, out: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False)
    return [convolution, nn.GroupNorm(_GROUPS, out)]


class ResidualBlock(nn.Module):
    """relu(shortcut(x) + body(x)): the shortcut is x, or its projection where the shape changes."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_group_normed(into, out, 3, stride), nn.ReLU(), *_group_normed(out, out, 3)
        )
        # A projection where the shape changes, as x and body(x) could not be added otherwise.
        projected = _group_normed(into, out, 1, stride) if stride > 1 or into != out else []
        self.shortcut, self.act = nn.Sequential(*projected), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(self.shortcut(x) + self.body(x))
        return y


class CharLstmNetwork(nn.Module):
    """Embedding, stacked LSTM, and a linear layer on its last output, [n, T] -> [n, classes]."""

    def __init__(self, classes: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.lstm(self.embedding(x))[0][:, -1])
        return logits
