"""The multiply-adds of a forward pass, layer by layer."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn

from simfl.learning.models.batch_norm import BatchNorm
from simfl.learning.models.shapes import Shape

_NORMS = (BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


def macs(module: nn.Module, input_shape: Shape) -> int:
    """Multiply-adds of one sample's forward pass, those of padding included, biases not.

    A normalisation layer counts 2 an output: one for the statistics, one for the scaling. Activations,
    pooling and products of activations count nothing. ValueError for another layer with parameters than
    these, linear ones and convolutions, or one whose parameters are used without calling it: its work is
    unknown. The module, on the meta device, is used up.
    """
    total = 0
    owning = {layer for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None}
    silent = set(owning)

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        nonlocal total
        each = _macs_per_output(layer)
        total += output.numel() * each
        silent.discard(layer)

    for layer in owning | {layer for layer in module.modules() if isinstance(layer, _NORMS)}:
        layer.register_forward_hook(count)
    with torch.no_grad(), torch.device("meta"):
        module(torch.empty(1, *input_shape))
    if silent:
        kinds = ", ".join(sorted({type(layer).__name__ for layer in silent}))
        raise ValueError(f"the multiply-adds of layers that are not called are not known: {kinds}")
    return total


def _macs_per_output(layer: nn.Module) -> int:
    if isinstance(layer, nn.Linear):
        return layer.in_features
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return layer.in_channels // layer.groups * prod(layer.kernel_size)
    if isinstance(layer, _NORMS):
        return 2
    raise ValueError(f"the multiply-adds of a layer {type(layer).__name__} are not known")
