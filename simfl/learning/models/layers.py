"""The two layers that stand for torch's own, and what one pass through a module's layers shows.

Batch norm has no running statistics: they are buffers, which SGD does not train, so they are neither
aggregated nor masked. Every layer normalises with the mean and variance of the batch that it sees, in
training and in evaluation alike: static batch normalisation (HeteroFL, Diao, Ding and Tarokh 2021, section 3)
without its last pass over the users' data; evaluation sees large batches instead.

Dropout draws nothing itself: torch's own draws from a global generator, and an update must depend on its
user's stream alone. The trainer sets what is kept before each minibatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import torch
from torch import Tensor, nn

from simfl.learning.models.model import Shape


class BatchNorm(nn.Module):
    """y = weight (x - mean) / sqrt(var + eps) + bias, a channel (Ioffe and Szegedy 2015, Algorithm 1).

    Maps [n, channels, ...] to the same shape; mean and biased variance are over the batch and all positions.
    One value a channel, as in a batch of one sample without positions, has no variance: it gives `bias`.
    """

    def __init__(self, channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels)) if affine else None
        self.bias = nn.Parameter(torch.zeros(channels)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        # nn.functional.batch_norm refuses one value a channel.
        cudnn = torch.backends.cudnn.enabled
        return torch.batch_norm(x, self.weight, self.bias, None, None, True, 0.0, self.eps, cudnn)


class Dropout(nn.Module):
    """x keep / (1 - p) (inverted dropout; Srivastava et al. 2014, section 10).

    keep: 0 or 1 in the shape of x, or what broadcasts to it, drawn as 1 with probability 1 - p; it may be
    mapped by torch.func.vmap. None, as at first and in evaluation: x itself. ValueError unless 0 <= p < 1.
    """

    keep: Tensor | None

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout p={p} must be at least 0 and below 1")
        self.p = p
        self.keep = None

    def forward(self, x: Tensor) -> Tensor:
        return x if self.keep is None else x * self.keep / (1 - self.p)


NORMS = (BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


def dry_pass(
    module: nn.Module,
    input_shape: Shape,
    samples: int,
    watched: Mapping[str, nn.Module],
    note: Callable[[str, tuple[Tensor, ...], Tensor], None],
) -> None:
    """Make one forward pass where the module is; note(name, inputs, output) is told of each watched call."""
    hooks = [
        layer.register_forward_hook(lambda _, inputs, output, name=name: note(name, inputs, output))
        for name, layer in watched.items()
    ]
    some = next(module.parameters())
    with torch.no_grad(), some.device:
        module(torch.zeros(samples, *input_shape, dtype=some.dtype))
    for hook in hooks:
        hook.remove()


def dropouts(module: nn.Module, input_shape: Shape) -> list[tuple[Dropout, Shape]]:
    """Return each `Dropout` with the shape of its input for one sample, in the order of their calls.

    ValueError if one is called twice, as it would keep the same both times, or gets no [n, ...] of n samples.
    """
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, Dropout)}
    found: dict[str, tuple[Dropout, Shape]] = {}

    def note(name: str, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        if name in found:
            raise ValueError(f"dropout {name!r} is called twice: use a layer for each place")
        n, *shape = inputs[0].shape
        if n != 2:
            raise ValueError(f"dropout {name!r} gets {[n, *shape]} for 2 samples: they must come first")
        found[name] = (layers[name], tuple(shape))

    if layers:
        dry_pass(module, input_shape, 2, layers, note)
    return list(found.values())


def macs(module: nn.Module, input_shape: Shape) -> int:
    """Return the multiply-adds of one sample's forward pass, those of padding included, biases not.

    A normalisation layer counts 2 an output: one for the statistics, one for the scaling. Activations,
    pooling and products of activations count nothing. ValueError if the work of a layer with parameters is
    unknown, or it is used without being called.
    """
    layers = dict(module.named_modules())
    silent = {name for name in layers if next(layers[name].parameters(recurse=False), None) is not None}
    watched = {name: layer for name, layer in layers.items() if name in silent or isinstance(layer, NORMS)}
    total = 0

    def note(name: str, _: object, output: Tensor) -> None:
        nonlocal total
        each = _macs_per_output(layers[name])  # of the kinds that it knows, the output is one tensor
        total += output.numel() * each
        silent.discard(name)

    dry_pass(module, input_shape, 1, watched, note)
    if silent:
        kinds = ", ".join(sorted({type(layers[name]).__name__ for name in silent}))
        raise ValueError(f"the multiply-adds of layers that are not called are not known: {kinds}")
    return total


def _macs_per_output(layer: nn.Module) -> int:
    if isinstance(layer, nn.Linear):
        return layer.in_features
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return layer.in_channels // layer.groups * prod(layer.kernel_size)
    if isinstance(layer, NORMS):
        return 2
    raise ValueError(f"the multiply-adds of a layer {type(layer).__name__} are not known")
