"""Logistic (softmax) regression: one linear layer.

28x28 in 10 classes has 7,850 parameters, the AT&T faces (112x92, 40 people) 412,200.
"""

from __future__ import annotations

from math import prod

from torch import nn

from simfl.learning.models.shapes import Shape


def logistic(input_shape: Shape, classes: int) -> nn.Module:
    """prod(input_shape) classes weights and a bias a class."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), classes))
