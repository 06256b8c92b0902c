"""A model's parameters as views of one flat vector.

The vector is what the field sees: an update, a mask and an aggregate are d numbers in this order. Weights
of 2-D convolutions lie in it channels last, as the fast kernels want them; everything else in torch's order.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from simfl.learning.models import Model, Shape
from simfl.learning.models.dropout import Dropout
from simfl.learning.stepping import install


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a parameter lies: elements start .. end of the vector, and its shape there and in the module."""

    name: str
    start: int
    end: int
    shape: tuple[int, ...]

    def view(self, flat: Tensor) -> Tensor:
        """The parameter as a view of a flat vector [d]."""
        part = flat[self.start : self.end]
        if len(self.shape) != 4:
            return part.view(self.shape)
        out, into, high, wide = self.shape
        return part.view(out, high, wide, into).permute(0, 3, 1, 2)


def slots(module: nn.Module) -> list[Slot]:
    """The layout of a module's parameters, in the order of `named_parameters`."""
    found, start = [], 0
    for name, parameter in module.named_parameters():
        found.append(Slot(name, start, start + parameter.numel(), tuple(parameter.shape)))
        start += parameter.numel()
    return found


class Workspace(threading.local):
    """One module a thread, its parameters views of `flat` [d]: threading.local runs __init__ in each.

    `others` are the parameters that do not belong to a `Stepping` layer as its weights. The model is one that
    was tried (`facts`): nothing here is on torch's meta device, whose compiler takes over a second to import.
    """

    def __init__(self, model: Model, shape: Shape, classes: int, device: str, dtype: torch.dtype) -> None:
        self.module = model.blank(shape, classes, tried=True)
        self.slots = slots(self.module)
        self.flat = torch.zeros(self.slots[-1].end, device=device, dtype=dtype)
        self.parameters: list[nn.Parameter] = []
        for slot in self.slots:
            owner, _, leaf = slot.name.rpartition(".")
            parameter = nn.Parameter(slot.view(self.flat))
            setattr(self.module.get_submodule(owner), leaf, parameter)
            self.parameters.append(parameter)
        self.stepping = install(self.module, shape)
        own = {id(layer.weight) for layer in self.stepping}
        self.others = [p for p in self.parameters if id(p) not in own]
        self.dropouts = [
            (self.module.get_submodule(name), p, inner)
            for name, p, inner in model.dropouts(shape, classes, self.module)
        ]

    def keep(self, masks: list[Tensor] | None) -> None:
        """What each dropout keeps of the next minibatch; None: everything."""
        for k, (layer, _, _) in enumerate(self.dropouts):
            assert isinstance(layer, Dropout)
            layer.keep = None if masks is None else masks[k]


def initial(module: nn.Module, generator: torch.Generator) -> Tensor:
    """x^(0) [d]: weights uniform on +-1 / sqrt(fan-in), torch's default (Kaiming-uniform with a = sqrt 5);
    scales of normalisation layers one, biases zero."""
    layout = slots(module)
    flat = torch.zeros(layout[-1].end)
    for slot in layout:
        if len(slot.shape) >= 2:
            bound = prod(slot.shape[1:]) ** -0.5
            uniform = torch.rand(prod(slot.shape), generator=generator)
            slot.view(flat).copy_(((2 * uniform - 1) * bound).view(slot.shape))
        elif slot.name.rpartition(".")[2] == "weight":
            flat[slot.start : slot.end] = 1
    return flat


def step_within(work: Workspace, lr: float | None) -> None:
    """Let the stepping layers take their steps in backward passes, or (None) leave it."""
    for layer in work.stepping:
        layer.lr = lr


def images(x: Tensor) -> Tensor:
    """Samples as the convolutions want them: channels last where there are channels."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
