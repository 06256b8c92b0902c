"""What a module must be so that its update is a pure function of its parameters, the samples and a stream.

Its parameters are all its state, each in one place: that is what is flattened, masked and aggregated. All
that it draws is what its `Dropout` layers keep. `blank` makes a module so, or says why it cannot be.
Everything happens on the meta device, where tensors have shapes and no content: nothing is initialised, and
torch's global random state is not touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from simfl.learning.models.layers import BatchNorm, Dropout, dropouts
from simfl.learning.models.model import Model, Shape

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_RANDOM = (nn.modules.dropout._DropoutNd, nn.RReLU)

_SAMPLES = 2
"""In a dry run: with one, a module that mixes up samples and classes would pass."""


def blank(model: Model, shape: Shape, classes: int, tried: bool = False) -> nn.Module:
    """Return a model's module on the meta device, with this package's `BatchNorm` and `Dropout` for torch's.

    tried: its dry run went well before. ValueError, naming the model, if it keeps state or draws elsewhere,
    does not map [n, *shape] to [n, classes], or has parameters that no gradient reaches.
    """
    with torch.device("meta"):
        module = model.build(shape, classes)
        try:
            if not isinstance(module, nn.Module):
                raise ValueError(f"build gave {type(module).__name__}, not a torch.nn.Module")
            if any(nn.parameter.is_lazy(p) for p in module.parameters()):
                _forward(module, shape)
            module = _replaced(module)
            _refuse_state(module)
            if not tried:
                _dry_run(module, shape, classes)
                dropouts(module, shape)
        except ValueError as error:
            raise ValueError(f"model {model.name}: {error}") from error
    return module


def _replaced(module: nn.Module) -> nn.Module:
    made: dict[nn.Module, nn.Module] = {}
    for path, layer in list(module.named_modules(remove_duplicate=False)):
        other = made.get(layer) or _replacement(path, layer)
        if other is None:
            continue
        made[layer] = other
        if not path:
            return other
        owner, _, leaf = path.rpartition(".")
        setattr(module.get_submodule(owner), leaf, other)
    return module


def _replacement(path: str, layer: nn.Module) -> nn.Module | None:
    named = f"layer {path!r}, {type(layer).__name__},"
    if isinstance(layer, nn.Dropout) and type(layer) is nn.Dropout:
        return Dropout(layer.p)
    if isinstance(layer, _RANDOM):
        raise ValueError(f"{named} draws random numbers: only nn.Dropout may")
    if not isinstance(layer, _BATCH_NORMS):
        return None
    if type(layer) not in _BATCH_NORMS:
        raise ValueError(f"{named} is a batch norm of its own kind: use nn's as it is")
    return BatchNorm(layer.num_features, layer.eps, layer.affine)


def _refuse_state(module: nn.Module) -> None:
    buffers = [name for name, _ in module.named_buffers()]
    if buffers:
        raise ValueError(f"buffers are not aggregated: {', '.join(buffers)}")
    loose = [
        f"{path}.{key}".lstrip(".")
        for path, layer in module.named_modules()
        for key, value in vars(layer).items()
        if isinstance(value, Tensor)
    ]
    if loose:
        raise ValueError(f"tensors that are not parameters have no content here: {', '.join(loose)}")
    places = Counter(p for layer in module.modules() for p in layer.parameters(recurse=False))
    if not places:
        raise ValueError("there are no parameters to train")
    tied = [name for name, p in module.named_parameters() if places[p] > 1]
    if tied:
        raise ValueError(f"parameters that several layers share are not supported: {', '.join(tied)}")


def _refuse_draws(
    _: object, op: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Any:
    if torch.Tag.nondeterministic_seeded in op.tags:
        raise ValueError(f"it draws random numbers ({op}): only nn.Dropout may")
    return op(*args, **(kwargs or {}))


# Not a class statement: torch's base has no annotations, and mypy refuses to subclass it. Nothing is compiled
# here: told so, torch does not import its compiler (two CPU seconds) only to switch it off for this class.
_NoDraws = type(
    "_NoDraws",
    (TorchDispatchMode,),
    {"__torch_dispatch__": _refuse_draws, "_should_skip_dynamo": classmethod(lambda _: False)},
)


def _dry_run(module: nn.Module, input_shape: Shape, classes: int) -> None:
    convolutions = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    hooks = [layer.register_forward_hook(_channels_last) for layer in convolutions]
    with _NoDraws():
        logits = _forward(module, input_shape)
    for hook in hooks:
        hook.remove()
    if not isinstance(logits, Tensor) or logits.shape != (_SAMPLES, classes):
        shown = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"for {_SAMPLES} samples it gives {shown}, not logits {[_SAMPLES, classes]}")
    names, parameters = zip(*module.named_parameters(), strict=True)
    trained = [p for p in parameters if p.requires_grad]
    gradients = torch.autograd.grad(logits.sum(), trained, allow_unused=True) if logits.requires_grad else ()
    reached = {p for p, g in zip(trained, gradients, strict=False) if g is not None}
    idle = [name for name, p in zip(names, parameters, strict=True) if p not in reached]
    if idle:
        raise ValueError(f"no gradient reaches the parameters {', '.join(idle)}")


def _channels_last(_: nn.Module, __: object, output: Tensor) -> Tensor:
    # As the trainer's convolutions give it: it often cannot be viewed as rows, and meta's would not tell.
    return output.contiguous(memory_format=torch.channels_last)


def _forward(module: nn.Module, input_shape: Shape) -> object:
    try:
        logits: object = module(torch.empty(_SAMPLES, *input_shape))
    except Exception as error:
        shown = f"{type(error).__name__}: {error}"
        raise ValueError(f"its forward fails for samples {list(input_shape)}: {shown}") from error
    return logits
