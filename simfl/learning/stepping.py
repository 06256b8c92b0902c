"""Linear layers that take their SGD step amid the backward pass.

A fully connected layer holds most of a small CNN's parameters, and a minibatch is few rows: writing the
gradient of its weights and reading it again costs about as much as computing it. x <- x - lr g^T a adds the
product to the weights in place instead. The gradient of the layer's input is taken before, from the old
weights, so the step is that of SGD.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from simfl.learning.models import Shape
from simfl.learning.models.dropout import dry_forward

LEAST = 2**16
"""Weights of a layer for which this pays: below, the call of Python in the backward pass costs more."""


class Stepping(nn.Linear):
    """`nn.Linear`; while `lr` is set, a backward pass steps the weights and gives them no gradient."""

    lr: float | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.lr is None or not torch.is_grad_enabled():
            return super().forward(x)
        # Through .data, which autograd's check for changed tensors does not watch.
        step: Callable[..., Tensor] = _Step.apply
        return step(x, self.bias, self.weight.data, self.lr)


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, weight: Tensor, lr: float) -> Tensor:
        ctx.x, ctx.weight, ctx.lr, ctx.biased = x, weight, lr, bias is not None
        return linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        down = g @ ctx.weight if ctx.needs_input_grad[0] else None
        ctx.weight.addmm_(g.t(), ctx.x, alpha=-ctx.lr)
        return down, g.sum(dim=0) if ctx.biased else None, None, None


def install(module: nn.Module, shape: Shape) -> list[Stepping]:
    """Turn large linear layers of a module into `Stepping` ones, and return them: those that a forward
    pass calls once, on a batch of vectors. (With a bias: for its gradient autograd visits a first layer.)"""
    layers = {name: layer for name, layer in module.named_modules() if type(layer) is nn.Linear}
    calls: Counter[str] = Counter()
    hooks = [
        layer.register_forward_hook(
            lambda _, inputs, __, name=name: calls.update({name: 1 if inputs[0].dim() == 2 else 2})
        )
        for name, layer in layers.items()
    ]
    dry_forward(module, 2, shape)
    for hook in hooks:
        hook.remove()
    found = []
    for name, layer in layers.items():
        if calls[name] == 1 and layer.bias is not None and layer.weight.numel() >= LEAST:
            layer.__class__ = Stepping
            assert isinstance(layer, Stepping)
            found.append(layer)
    return found
