"""A convolutional network small enough for tests and a laptop: 6,090 parameters on 8x8 digits."""

from __future__ import annotations

from torch import nn

from simfl.learning.models.shapes import Shape, image


def cnn(input_shape: Shape, classes: int) -> nn.Module:
    """Two convolutions of 3x3 with 16 and 32 channels, each pooled by 2, and a linear layer; h, w >= 4."""
    channels, height, width = image("cnn", input_shape, least=4)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), classes),
    )
