"""VGG-11 for CIFAR-100: 9,271,780 parameters, 9,220,480 of them in the convolutions.

Simonyan and Zisserman 2015, "Very deep convolutional networks for large-scale image recognition", Table 1,
configuration A. As usual for 32x32 images, one linear layer stands for the three of ImageNet's head.
"""

from __future__ import annotations

from torch import nn

from simfl.learning.models.shapes import Shape, image

_CHANNELS = ((64,), (128,), (256, 256), (512, 512), (512, 512))
"""Of the 3x3 convolutions; each group is pooled by 2."""


def vgg11(input_shape: Shape, classes: int) -> nn.Module:
    """h, w >= 32; what five poolings leave of larger images is averaged."""
    into, _, _ = image("vgg11", input_shape, least=32)
    layers: list[nn.Module] = []
    for group in _CHANNELS:
        for out in group:
            layers += [nn.Conv2d(into, out, 3, padding=1), nn.ReLU()]
            into = out
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, classes))
