"""Dropout that draws nothing itself.

torch's own dropout draws from a global generator, and an update must depend on its user's stream alone: the
trainer sets what is kept before each minibatch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

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
    """(name, p, shape of its input for one sample) of each `Dropout` in a module on the meta device, in the
    order in which a forward pass calls them.

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

        layer.register_forward_pre_hook(note)

    for name, layer in module.named_modules():
        if isinstance(layer, Dropout):
            watch(name, layer)
    with torch.no_grad(), torch.device("meta"):
        module(torch.empty(samples, *input_shape))
    return list(found.values())
