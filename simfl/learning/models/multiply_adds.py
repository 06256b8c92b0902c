"""The multiply-adds of a module's forward pass, and a digest of the layers that it calls.

Products are counted as torch executes them, by the formulas of torch's own counter
(`torch.utils.flop_counter`), so a module of user-defined operations is counted like one of torch's layers.
The counter itself is not used: it also assigns operations to modules, which is not needed here.
`test_macs_are_half_the_flops_of_torchs_own_counter` holds the figures to it.
"""

import hashlib
import json
from typing import Any

from torch import nn
from torch.utils.flop_counter import flop_registry

from simfl.learning.models.model import Shape
from simfl.learning.models.rules import NORMS, dry_pass, watching


def macs(module: nn.Module, input_shape: Shape, tokens: bool = False) -> int:
    """Return the multiply-adds of one sample's forward pass.

    Products of matrices, convolutions and attention are counted, also products with padding. A normalisation
    layer counts 2 for each number of its output: one for the statistics, one for the scaling. Biases,
    activations, pooling and look-ups of embeddings count nothing, nor do products for which torch's counter
    has no formula: `nn.Bilinear`, `Tensor.mv` and `dot`, `torch.cdist`, and products by elements.

    Args:
        module: On the meta device.
        input_shape: Shape of a sample.
        tokens: True if samples are integers.
    """
    flops = 0

    def count(op: Any, args: Any, kwargs: Any, output: Any) -> None:
        nonlocal flops
        # By overload packet, as the registry has it: one entry for all overloads of an operation.
        if (formula := flop_registry.get(op._overloadpacket)) is not None:
            flops += formula(*args, **kwargs, out_val=output)

    norms = {name: layer for name, layer in module.named_modules() if isinstance(layer, NORMS)}
    with watching(count):
        calls = dry_pass(module, (1, *input_shape), norms, tokens)
    # torch counts a multiply-add as two operations.
    return int(flops // 2 + sum(2 * output.numel() for _, _, output in calls))


def digest(module: nn.Module, input_shape: Shape, tokens: bool = False) -> str:
    """Return a hash, 16 hexadecimal digits, of each called layer's kind, settings and output, and of all
    parameters.

    Operations of modules between their layers are not in it.
    """
    # Innermost layers only, so that the names of user-defined classes around them do not count.
    layers = {name: layer for name, layer in module.named_modules() if not [*layer.children()]}
    called = [
        (type(layers[name]).__name__, layers[name].extra_repr(), list(getattr(output, "shape", [])))
        for name, _, output in dry_pass(module, (1, *input_shape), layers, tokens)
    ]
    parameters = [(list(p.shape), p.requires_grad) for p in module.parameters()]
    return hashlib.sha256(json.dumps([called, parameters, list(input_shape)]).encode()).hexdigest()[:16]


def is_recurrent(module: nn.Module) -> bool:
    """Return True if a module has recurrent layers."""
    return any(isinstance(layer, nn.RNNBase) for layer in module.modules())
