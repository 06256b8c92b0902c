"""Multiply-adds of a module's forward pass, counted layer by layer; torch's own counter is the tests' oracle.

A layer is counted at each call, from the shapes of its output, which are known on the meta device. Layers
that multiply inside, as recurrent ones and attention do, are counted whole, and their parts not again.
"""

import hashlib
import json
from math import prod

from torch import Tensor, nn

from simfl.learning.models.model import Shape
from simfl.learning.models.rules import NORMS, dry_pass

_GATES = {nn.RNN: 1, nn.GRU: 3, nn.LSTM: 4, nn.RNNCell: 1, nn.GRUCell: 3, nn.LSTMCell: 4}
_CELLS = (nn.RNNCell, nn.GRUCell, nn.LSTMCell)
_WHOLE = (nn.RNNBase, *_CELLS, nn.MultiheadAttention)


def macs(module: nn.Module, input_shape: Shape, tokens: bool = False) -> int:
    """Return the multiply-adds of one sample's forward pass, those of padding included, biases not.

    A normalisation layer counts 2 an output: one for the statistics, one for the scaling. Activations,
    pooling, look-ups of embeddings, and products of activations outside of `nn.MultiheadAttention` count
    nothing. ValueError if the work of a layer with parameters is unknown, or it is used without being called.
    """
    layers = dict(module.named_modules())
    inner = {name for name in layers if any(_within(name, other, layers[other]) for other in layers)}
    silent = {
        name for name in layers if next(layers[name].parameters(recurse=False), None) is not None
    } - inner
    watched = {
        name: layer
        for name, layer in layers.items()
        if name not in inner and (name in silent or isinstance(layer, (*NORMS, *_WHOLE)))
    }
    total = 0
    for name, given, output in dry_pass(module, (1, *input_shape), watched, tokens):
        total += _macs(layers[name], given, output)
        silent.discard(name)
    if silent:
        kinds = ", ".join(sorted({type(layers[name]).__name__ for name in silent}))
        raise ValueError(f"the multiply-adds of layers that are not called are not known: {kinds}")
    return total


def digest(module: nn.Module, input_shape: Shape, tokens: bool = False) -> str:
    """Return a hash of what a forward pass calls: each layer's kind, settings and output, and its parameters.
    Operations of modules between their layers are not in it."""
    layers = {name: layer for name, layer in module.named_modules() if not [*layer.children()]}
    called = [
        (type(layers[name]).__name__, layers[name].extra_repr(), list(getattr(output, "shape", [])))
        for name, _, output in dry_pass(module, (1, *input_shape), layers, tokens)
    ]
    parameters = [(list(p.shape), p.requires_grad) for p in module.parameters()]
    return hashlib.sha256(json.dumps([called, parameters, list(input_shape)]).encode()).hexdigest()[:16]


def is_recurrent(module: nn.Module) -> bool:
    return any(isinstance(layer, nn.RNNBase) for layer in module.modules())


def _within(name: str, other: str, layer: nn.Module) -> bool:
    return isinstance(layer, _WHOLE) and name != other and (not other or name.startswith(f"{other}."))


def _macs(layer: nn.Module, given: tuple[Tensor, ...], output: object) -> int:
    if isinstance(layer, nn.Embedding):
        return 0
    if isinstance(layer, nn.RNN | nn.GRU | nn.LSTM):
        return _recurrent(layer, output[0].numel())  # type: ignore[index]
    if isinstance(layer, _CELLS):
        hidden = output if isinstance(output, Tensor) else output[0]  # type: ignore[index]
        return int(hidden.numel()) * _gates(layer) * (layer.input_size + layer.hidden_size)
    if isinstance(layer, nn.MultiheadAttention):
        return _attention(layer, given, output[0])  # type: ignore[index]
    assert isinstance(output, Tensor)
    return output.numel() * _macs_per_output(layer)


def _gates(layer: nn.Module) -> int:
    return next(gates for kind, gates in _GATES.items() if isinstance(layer, kind))


def _recurrent(layer: nn.RNNBase, outputs: int) -> int:
    """Of each step, every layer and direction multiplies its input and its last output by the gates' weights;
    `proj_size` makes outputs shorter than what is hidden."""
    ways, hidden = 1 + layer.bidirectional, layer.hidden_size
    out = layer.proj_size or hidden
    steps = outputs // (ways * out)
    inputs = [layer.input_size, *[ways * out] * (layer.num_layers - 1)]
    of_gates = sum(_gates(layer) * hidden * (size + out) for size in inputs)
    of_projections = len(inputs) * hidden * layer.proj_size
    return steps * ways * (of_gates + of_projections)


def _attention(layer: nn.MultiheadAttention, given: tuple[Tensor, ...], output: Tensor) -> int:
    """Of L queries and S keys: four projections, the scores' products and those with values."""
    E, L, S = layer.embed_dim, output.numel() // layer.embed_dim, given[1].numel() // layer.kdim
    return int(2 * L * E * E + S * E * (layer.kdim + layer.vdim) + 2 * L * S * E)


def _macs_per_output(layer: nn.Module) -> int:
    if isinstance(layer, nn.Linear):
        return layer.in_features
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return layer.in_channels // layer.groups * prod(layer.kernel_size)
    if isinstance(layer, NORMS):
        return 2
    raise ValueError(f"the multiply-adds of a layer {type(layer).__name__} are not known")
