"""A multilayer perceptron (2NN of McMahan et al. 2017, section 3, has two hidden layers of 200 units)."""

from itertools import pairwise
from math import prod

from pydantic import Field

from simfl.learning.models import Model


class Perceptron(Model):
    """`layers` hidden layers of `units` with ReLU."""

    units: int = Field(200, ge=1)
    layers: int = Field(2, ge=1)

    def build(self, shape, classes):
        from torch import nn  # here, so that `simfl check` need not wait for torch

        sizes = [prod(shape)] + [self.units] * self.layers
        hidden = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(sizes)]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(self.units, classes))
