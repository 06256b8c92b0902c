"""The rules by which a module's update is a pure function of its parameters, the samples and a stream.

1. The parameters are all of the module's state, and each belongs to one layer. They are flattened, masked and
   aggregated; other state would be lost.
2. Only `Dropout` layers draw random numbers.
3. The module maps [n, *shape] to logits [n, classes], and a gradient reaches each trained parameter.

Modules are checked on the meta device, where tensors have shapes and no content: nothing is initialised, and
torch's global random state is not touched (`tests/learning/models/test_rules.py`).

Two layers replace torch's. Batch norm has no running statistics, since those are buffers, which are neither
trained nor aggregated. It normalises with the mean and variance of the present batch, in evaluation too. That
is static batch normalisation (HeteroFL, Diao, Ding and Tarokh 2021, section 3), with large batches instead of
its last pass over users' data. Dropout draws nothing itself, since torch's draws from a global generator, and
an update must depend on its user's stream only. The trainer sets the masks before each minibatch.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils._python_dispatch import TorchDispatchMode

from simfl.learning.models.model import Model, Shape

_TORCH_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
# The private base of all of torch's dropouts.
_RANDOM = (nn.modules.dropout._DropoutNd, nn.RReLU)
_OF_NUMBERS = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.MultiheadAttention)
_SAMPLES = 2
"""Samples of a dry run: with one, a module that confuses samples and classes would pass."""


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
        # nn.functional.batch_norm refuses one value a channel. No running statistics are given, and the mode
        # is that of training, so the batch's own are used in evaluation too.
        cudnn = torch.backends.cudnn.enabled
        return torch.batch_norm(x, self.weight, self.bias, None, None, True, 0.0, self.eps, cudnn)


class Dropout(nn.Module):
    """x keep / (1 - p) (inverted dropout; Srivastava et al. 2014, section 10).

    Attributes:
        p: Probability of a dropped element.
        keep: The mask: 1 with probability 1 - p, otherwise 0, in the shape of x or one that broadcasts to it.
            It may be mapped by torch.func.vmap. None, as at first and in evaluation, for x unchanged.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout p={p} must be at least 0 and below 1")
        self.p = p
        self.keep: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        # Scaled here and not in evaluation, so that the mean stays (inverted dropout).
        return x if self.keep is None else x * self.keep / (1 - self.p)


NORMS = (BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
Call = tuple[str, tuple[Tensor, ...], Any]
"""A layer's name, its inputs and its output, one tensor of most layers."""


def blanks(module: nn.Module, shape: Shape, tokens: bool) -> Tensor:
    """Return zeros of a shape on the module's device: numbers in its parameters' type, or tokens."""
    first = next(module.parameters())
    return torch.zeros(shape, dtype=torch.long if tokens else first.dtype, device=first.device)


def dry_pass(
    module: nn.Module, inputs: Shape, watched: Mapping[str, nn.Module], tokens: bool = False
) -> list[Call]:
    """Return the calls of layers in one forward pass, in their order.

    Args:
        module: On any device, where the pass runs.
        inputs: Shape of the input, which is zeros.
        watched: Layers by name.
        tokens: The input is integers.
    """
    calls: list[Call] = []

    def noting(name: str) -> Any:
        return lambda _, given, named, output: calls.append((name, (*given, *named.values()), output))

    # With keywords: a module may pass a layer's input by name.
    hooks = [layer.register_forward_hook(noting(name), with_kwargs=True) for name, layer in watched.items()]
    with torch.no_grad(), next(module.parameters()).device, _steps_left_out(module):
        module(blanks(module, inputs, tokens))
    for hook in hooks:
        hook.remove()
    return calls


@contextmanager
def _steps_left_out(module: nn.Module) -> Iterator[None]:
    """Compute recurrent layers on the meta device without their steps, within a context.

    On that device a step of torch's is Python code, and a text of 80 characters would take ten seconds.
    """
    recurrent = [layer for layer in module.modules() if isinstance(layer, nn.RNN | nn.GRU | nn.LSTM)]
    on_meta = [layer for layer in recurrent if all(p.is_meta for p in layer.parameters())]
    for layer in on_meta:
        layer.forward = partial(_without_steps, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in on_meta:
            # The instance's attribute, which hid the method of the class.
            del layer.forward


def _without_steps(layer: nn.RNNBase, x: Any, state: Any = None) -> Any:
    """Return a recurrent layer's outputs, which lack their values, by the products of all steps at once."""
    # A packed sequence has no shape to work with.
    if not isinstance(x, Tensor):
        return type(layer).forward(layer, x, state)
    layer.check_input(x, None)
    states = (state,) if isinstance(state, Tensor) else tuple(state or ())
    samples = [] if x.dim() == 2 else [x.shape[0 if layer.batch_first else 1]]
    directions = ("", "_reverse")[: 1 + layer.bidirectional]
    # Sums connect results with every input and state, so that gradients reach them as in a real pass.
    output = x + sum(part.sum() for part in states)
    for depth in range(layer.num_layers):
        outputs = []
        for direction in directions:
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
            weights: list[Any] = [getattr(layer, f"{name}_l{depth}{direction}", None) for name in names]
            into, back, bias, more, out = weights
            previous = x.new_empty(*x.shape[:-1], layer.proj_size or layer.hidden_size)
            hidden = (linear(output, into, bias) + linear(previous, back, more))[..., : layer.hidden_size]
            outputs.append(hidden if out is None else linear(hidden, out))
        output = torch.cat(outputs, dim=-1)
    first, second = (
        output.sum().expand(len(directions) * layer.num_layers, *samples, size)
        for size in (layer.proj_size or layer.hidden_size, layer.hidden_size)
    )
    return output, (first, second) if isinstance(layer, nn.LSTM) else first


def dropouts(module: nn.Module, input_shape: Shape, tokens: bool = False) -> list[tuple[Dropout, Shape]]:
    """Return each `Dropout` with the shape of its input for one sample, in the order of their calls.

    Raises:
        ValueError: A layer is called twice, where it would have one mask, or its input's first axis is not
            samples.
    """
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, Dropout)}
    shapes: dict[str, tuple[Dropout, Shape]] = {}
    # Two samples, so that an axis of length 1 is not taken for them.
    for name, given, _ in dry_pass(module, (2, *input_shape), layers, tokens) if layers else ():
        if name in shapes:
            raise ValueError(f"dropout {name!r} is called twice: use a layer for each place")
        n, *shape = given[0].shape
        if n != 2:
            raise ValueError(f"dropout {name!r} gets {[n, *shape]} for 2 samples: they must come first")
        shapes[name] = (layers[name], tuple(shape))
    return list(shapes.values())


def blank(model: Model, shape: Shape, classes: int, tried: bool = False, tokens: bool = False) -> nn.Module:
    """Return a model's module on the meta device, with this file's `BatchNorm` and `Dropout` instead of
    torch's.

    Args:
        model: The model.
        shape: Shape of a sample.
        classes: Number of classes.
        tried: It was checked before, and is not checked again.
        tokens: Samples are integers.

    Raises:
        ValueError: The module breaks one of the rules above; the message names the model.
    """
    with torch.device("meta"):
        module = model.build(shape, classes)
        try:
            if not isinstance(module, nn.Module):
                raise ValueError(f"build gave {type(module).__name__}, not a torch.nn.Module")
            # First of all, as lazy layers get their shapes, and become ordinary ones, in a pass
            # (test_rules.py: test_lazy_layers_take_their_shapes).
            if any(nn.parameter.is_lazy(p) for p in module.parameters()):
                _forward(module, shape, tokens)
            # Before the check of state: torch's batch norm has buffers, its replacement none.
            module = _replaced(module)
            _refuse_state(module)
            _check_content(module, model)
            if not tried:
                _dry_run(module, shape, classes, tokens)
                dropouts(module, shape, tokens)
        except ValueError as error:
            raise ValueError(f"model {model.name}: {error}") from error
    return module


def _replaced(module: nn.Module) -> nn.Module:
    """Return a module with its batch norms and dropouts replaced; a layer that occurs twice by one
    replacement."""
    replaced: dict[nn.Module, nn.Module] = {}
    for path, layer in list(module.named_modules(remove_duplicate=False)):
        other = replaced.get(layer) or _replacement(path, layer)
        # The module itself is such a layer, and has no owner in which to replace it.
        if other is not None and not path:
            return other
        if other is not None:
            replaced[layer] = other
            owner, _, leaf = path.rpartition(".")
            setattr(module.get_submodule(owner), leaf, other)
    return module


def _replacement(path: str, layer: nn.Module) -> nn.Module | None:
    named = f"layer {path!r}, {type(layer).__name__},"
    # Exactly this class: a subclass may do something else, and is refused below.
    if isinstance(layer, nn.Dropout) and type(layer) is nn.Dropout:
        return Dropout(layer.p)
    if isinstance(layer, _RANDOM) or (
        isinstance(layer, nn.RNNBase) and layer.dropout and layer.num_layers > 1
    ):
        raise ValueError(f"{named} draws random numbers: only nn.Dropout may")
    if not isinstance(layer, _TORCH_BATCH_NORMS):
        return None
    if type(layer) not in _TORCH_BATCH_NORMS:
        raise ValueError(f"{named} is a user-defined batch norm: use one of torch.nn's")
    return BatchNorm(layer.num_features, layer.eps, layer.affine)


def _refuse_state(module: nn.Module) -> None:
    if buffers := [name for name, _ in module.named_buffers()]:
        raise ValueError(f"buffers are not aggregated: {', '.join(buffers)}")
    # A tensor that a module keeps as a plain attribute: `build` ran on the meta device, so it has no content.
    loose = [
        f"{path}.{key}".lstrip(".")
        for path, layer in module.named_modules()
        for key, value in vars(layer).items()
        if isinstance(value, Tensor)
    ]
    if loose:
        raise ValueError(f"tensors that are not parameters have no content here: {', '.join(loose)}")
    # `named_parameters` lists a shared parameter once, and the vector would have one slot for two layers.
    places = Counter(p for layer in module.modules() for p in layer.parameters(recurse=False))
    if not places:
        raise ValueError("there are no parameters to train")
    if tied := [name for name, p in module.named_parameters() if places[p] > 1]:
        raise ValueError(f"parameters that several layers share are not supported: {', '.join(tied)}")


def _check_content(module: nn.Module, model: Model) -> None:
    named = dict(module.named_parameters())
    frozen = {name: tuple(p.shape) for name, p in named.items() if not p.requires_grad}
    for name, content in model.frozen().items():
        if frozen.get(name) != np.shape(content):
            has = f"a frozen parameter {list(frozen[name])}" if name in frozen else "no frozen parameter"
            raise ValueError(f"frozen() gives {name!r} {list(np.shape(content))}: it has {has} of this name")
    for start in model.own:
        if not any(name.startswith(start) and p.requires_grad for name, p in named.items()):
            raise ValueError(f"own names {start!r}, with which no trained parameter begins")


def shared(module: nn.Module, model: Model) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters that are trained and sent, with their names.

    Raises:
        ValueError: The module has no such parameter.
    """
    trained = ((name, p) for name, p in module.named_parameters() if p.requires_grad)
    # The order of `named_parameters`, which is that of the vector (`workspace.slots`).
    sent = [(name, p) for name, p in trained if not name.startswith(tuple(model.own))]
    if not sent:
        raise ValueError(
            f"model {model.name}: all its parameters are its users' own: there is nothing to send"
        )
    return sent


def watching(note: Callable[[Any, Any, Any, Any], None]) -> Any:
    """Return a context in which each of torch's operations is noted.

    Args:
        note: Called with the operation, its arguments by position and by name, and its result.
    """

    def dispatch(
        _: object, op: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        output = op(*args, **(kwargs or {}))
        note(op, args, kwargs or {}, output)
        return output

    # Not a class statement: torch's base has no annotations, and mypy refuses to subclass it. The method is
    # added to the finished class. In a class statement torch 2.11 and later would wrap it, and import its
    # compiler (two CPU seconds) only to exclude it from compilation (test_rules.py:
    # test_a_dry_run_does_not_import_the_compiler).
    mode: Any = type("Watching", (TorchDispatchMode,), {})
    mode.__torch_dispatch__ = dispatch
    return mode()


def _refuse_draws(op: Any, *_: object) -> None:
    if torch.Tag.nondeterministic_seeded in op.tags:
        raise ValueError(f"it draws random numbers ({op}): only nn.Dropout may")


def _dry_run(module: nn.Module, input_shape: Shape, classes: int, tokens: bool) -> None:
    convolutions = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    hooks = [layer.register_forward_hook(_channels_last) for layer in convolutions]
    of_numbers = [layer for layer in module.modules() if isinstance(layer, _OF_NUMBERS)]
    hooks += [layer.register_forward_pre_hook(_refuse_tokens) for layer in of_numbers]
    # Operations and not layers: functions such as nn.functional.dropout draw too.
    with watching(_refuse_draws), _steps_left_out(module):
        logits = _forward(module, input_shape, tokens)
    for hook in hooks:
        hook.remove()
    if not isinstance(logits, Tensor) or logits.shape != (_SAMPLES, classes):
        shown = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"for {_SAMPLES} samples it gives {shown}, not logits {[_SAMPLES, classes]}")
    trained = [p for p in module.parameters() if p.requires_grad]
    if not trained:
        raise ValueError("all its parameters are frozen: there is nothing to train")
    # On the meta device gradients have no content, but None shows where there is no path.
    gradients = torch.autograd.grad(logits.sum(), trained, allow_unused=True) if logits.requires_grad else ()
    reached = {p for p, g in zip(trained, gradients, strict=False) if g is not None}
    if idle := [name for name, p in module.named_parameters() if p.requires_grad and p not in reached]:
        raise ValueError(f"no gradient reaches the parameters {', '.join(idle)}")


def _channels_last(_: nn.Module, __: object, output: Tensor) -> Tensor:
    # The trainer's convolutions return this format, which often cannot be viewed as rows: a module that does
    # it must fail here too, and not at its first training.
    return output.contiguous(memory_format=torch.channels_last)


def _refuse_tokens(layer: nn.Module, given: tuple[Any, ...]) -> None:
    # On the meta device a product with integers passes.
    if any(isinstance(x, Tensor) and not x.is_floating_point() for x in given[:1]):
        raise TypeError(f"{type(layer).__name__} got tokens, which it cannot multiply: embed them")


def _forward(module: nn.Module, input_shape: Shape, tokens: bool) -> object:
    try:
        # A user-defined forward may raise anything.
        return module(torch.empty(_SAMPLES, *input_shape, dtype=torch.long if tokens else None))
    except Exception as error:
        shown, samples = f"{type(error).__name__}: {error}", "tokens" if tokens else "samples"
        raise ValueError(f"its forward fails for {samples} {list(input_shape)}: {shown}") from error
