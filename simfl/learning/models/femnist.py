"""The CNN for FEMNIST: 1,206,590 parameters on 28x28 in 62 classes.

Reddi et al. 2021, "Adaptive federated optimization", Table 4; CNN_DropOut of FedML, which LightSecAgg trains.
"""

from __future__ import annotations

from torch import nn

from simfl.learning.models.dropout import Dropout
from simfl.learning.models.shapes import Shape, image


def femnist_cnn(input_shape: Shape, classes: int) -> nn.Module:
    """Two 3x3 convolutions without padding, one pooling, two linear layers, two dropouts; h, w >= 6."""
    channels, height, width = image("femnist_cnn", input_shape, least=6)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128),
        nn.ReLU(),
        Dropout(0.5),
        nn.Linear(128, classes),
    )
