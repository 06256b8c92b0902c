"""Blanks made real for a test: small seeded normal values, nothing drawn from torch's global generator."""

from __future__ import annotations

import torch
from torch import nn

from simfl.learning.models import MODELS, Shape
from simfl.learning.models.batch_norm import BatchNorm


def filled(name: str, shape: Shape, classes: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A model of MODELS on the CPU: weights normal with the usual spread, scales about 1."""
    module = MODELS[name].blank(shape, classes).to_empty(device="cpu").to(dtype)
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
