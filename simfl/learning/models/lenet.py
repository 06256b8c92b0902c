"""LeNet-5: 61,706 parameters on MNIST (1x28x28), 62,006 on CIFAR-10 (3x32x32).

LeCun, Bottou, Bengio and Haffner 1998, "Gradient-based learning applied to document recognition", Fig. 2, as
it is trained today: ReLU for tanh, max pooling, a full second convolution, and a linear last layer.
"""

from __future__ import annotations

from torch import nn

from simfl.learning.models.shapes import Shape, image


def lenet5(input_shape: Shape, classes: int) -> nn.Module:
    """Images below 32x32 get the frame of 2 pixels that makes MNIST's 32x32; h, w >= 12."""
    channels, height, width = image("lenet5", input_shape, least=12)
    frame = 2 if min(height, width) < 32 else 0
    high, wide = (((side + 2 * frame - 4) // 2 - 4) // 2 for side in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=frame),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * high * wide, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
