"""The CNN of FedAvg: 1,663,370 parameters on 28x28 in 10 classes.

McMahan et al. 2017, "Communication-efficient learning of deep networks from decentralized data", section 3:
two 5x5 convolutions with 32 and 64 channels, each followed by 2x2 max pooling, a fully connected layer with
512 units and ReLU. Same padding is what the paper's count implies.
"""

from __future__ import annotations

from torch import nn

from simfl.learning.models.shapes import Shape, image


def mcmahan_cnn(input_shape: Shape, classes: int) -> nn.Module:
    """h, w >= 4."""
    channels, height, width = image("mcmahan_cnn", input_shape, least=4)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )
