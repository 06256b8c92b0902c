"""Dropout that draws nothing itself.

torch's own dropout draws from a global generator, and an update must depend on its user's stream alone: the
trainer sets what is kept before each minibatch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from simfl.learning.models.shapes import Shape


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


def dropouts(module: nn.Module, input_shape: Shape) -> list[tuple[str, float, Shape]]:
    """(name, p, shape of its input for one sample) of each `Dropout` in a module, in the order in which a
    forward pass calls them.

    ValueError for one that is called twice, as it would keep the same both times, or whose input is not
    [n, ...] for n samples.
    """
    found: dict[str, tuple[str, float, Shape]] = {}
    samples = 2

    def watch(name: str, layer: Dropout) -> None:
        def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if name in found:
                raise ValueError(f"dropout {name!r} is called twice: use a layer for each place")
            n, *shape = inputs[0].shape
            if n != samples:
                raise ValueError(
                    f"dropout {name!r} gets {[n, *shape]} for {samples} samples: they must come first"
                )
            found[name] = (name, layer.p, tuple(shape))

        hooks.append(layer.register_forward_pre_hook(note))

    hooks: list[RemovableHandle] = []
    for name, layer in module.named_modules():
        if isinstance(layer, Dropout):
            watch(name, layer)
    if hooks:
        dry_forward(module, samples, input_shape)
    for hook in hooks:
        hook.remove()
    return list(found.values())


def dry_forward(module: nn.Module, samples: int, input_shape: Shape) -> None:
    """One forward pass of so many samples for the sake of the hooks that see it, where the module is."""
    some = next(module.parameters())
    with torch.no_grad(), some.device:
        module(torch.zeros(samples, *input_shape, dtype=some.dtype))
