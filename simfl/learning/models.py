"""Models by name, and the multiply-adds of one forward pass.

A model is a deterministic function of its parameters and input: no dropout, no buffers. Modules are built
as blanks on torch's meta device, which holds shapes only: nothing is initialised, and torch's global
random state is not touched.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """A named architecture.

    build(shape of one sample, classes): a module that maps [n, *shape] to logits [n, classes].
    """

    name: str
    build: Callable[[Shape, int], nn.Module]

    def blank(self, input_shape: Shape, classes: int) -> nn.Module:
        """The module on the meta device: shapes without content. ValueError if it has buffers."""
        with torch.device("meta"):
            module = self.build(input_shape, classes)
        buffers = [name for name, _ in module.named_buffers()]
        if buffers:
            raise ValueError(f"model {self.name}: buffers are not aggregated: {', '.join(buffers)}")
        return module

    def macs(self, input_shape: Shape, classes: int) -> int:
        """Multiply-adds of one sample's forward pass, those of padding included, biases not.

        ValueError for a layer with parameters that is neither linear nor a convolution: its work is
        unknown.
        """
        module = self.blank(input_shape, classes)
        total = 0

        def count(layer: nn.Module, _: object, output: Tensor) -> None:
            nonlocal total
            total += output.numel() * _macs_per_output(layer)

        for layer in module.modules():
            if next(layer.parameters(recurse=False), None) is not None:
                layer.register_forward_hook(count)
        with torch.no_grad():
            module(torch.empty(1, *input_shape, device="meta"))
        return total


def _macs_per_output(layer: nn.Module) -> int:
    if isinstance(layer, nn.Linear):
        return layer.in_features
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return layer.in_channels // layer.groups * prod(layer.kernel_size)
    raise ValueError(f"the multiply-adds of a layer {type(layer).__name__} are not known")


def _logistic(input_shape: Shape, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), classes))


def _cnn(input_shape: Shape, classes: int) -> nn.Module:
    if len(input_shape) != 3 or min(input_shape[1:]) < 4:
        raise ValueError(f"cnn needs samples [c, h, w] with h, w >= 4, not {list(input_shape)}")
    channels, height, width = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), classes),
    )


MODELS: dict[str, Model] = {
    "logistic": Model("logistic", _logistic),
    "cnn": Model("cnn", _cnn),
}
"""On digits, 8 x 8 in 10 classes: logistic has 650 parameters, cnn 6,090."""
