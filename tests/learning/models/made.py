"""Models of tests, and blanks made real: small seeded normal values, none of torch's global generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from simfl.learning.models import MODELS, Model, Shape
from simfl.learning.models.rules import BatchNorm, blank


class Made(Model):
    """A test's model: the module that `make` builds."""

    make: Any
    title: str

    @property
    def name(self) -> str:
        return self.title

    def build(self, shape: Shape, classes: int) -> nn.Module:
        module: nn.Module = self.make(shape, classes)
        return module


def made(make: Callable[[Shape, int], nn.Module], title: str = "mine") -> Model:
    return Made(make=make, title=title)


def filled(name: str, shape: Shape, classes: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A model of MODELS on the CPU: weights normal with the usual spread, scales about 1."""
    module = blank(MODELS[name](), shape, classes).to_empty(device="cpu").to(dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for layer in module.modules():
            for leaf, p in layer.named_parameters(recurse=False):
                scale = isinstance(layer, BatchNorm) and leaf == "weight"
                spread = p[0].numel() ** -0.5 if p.dim() > 1 else 0.1
                noise = torch.randn(p.shape, generator=generator, dtype=dtype)
                p.copy_(noise * spread + (1 if scale else 0))
    return module


def normal(*shape: int, seed: int = 2, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Standard normal values."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
