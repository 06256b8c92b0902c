"""Tensors that trainings share: samples, parameters as views of one vector, and layers that step them early.

The vector is the form of a model outside: an update, a mask and an aggregate are d numbers in this order.
Weights of 2-D convolutions lie in it channels last, as fast kernels need them; all others in torch's order.
"""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from simfl.learning.data.dataset import F32, I64, Array, Dtype, Floats, Split
from simfl.learning.dropout_draws import DropoutDraws
from simfl.learning.minibatches import generator, kaiming
from simfl.learning.models.model import Model, Shape
from simfl.learning.models.rules import blank, dropouts, dry_pass, shared

MIN_STEPPING_WEIGHTS = 2**16
"""Minimum weights of a `Stepping` layer: for fewer, the call of Python in the backward pass costs more than
it gains."""


MAX_PINNED_BYTES = 2**28
"""Largest array that goes through pinned memory. Torch keeps such memory, rounded up to a power of two, until
the process ends, so a data set that is sent once would occupy it twice over."""


Rows = Tensor | I64
"""Numbers of samples: on the device if it has the samples."""


class Samples:
    """All training samples, stored on the device once.

    Pixels stay bytes until they are in a minibatch; images that a data set reads lazily stay on disk.

    Args:
        split: Training and test samples.
        device: "cpu" or "cuda".
        dtype: Type of the arithmetic.
    """

    arrays = torch
    """Module of the arrays' functions; `closed_form.HostSamples` has numpy."""

    def __init__(self, split: Split, device: str, dtype: Dtype) -> None:
        self.device, self.shape, x = device, split.shape, split.x_train
        self.tokens = split.tokens
        self.dtype: torch.dtype = getattr(torch, np.dtype(dtype).name)
        self._x = to_tensor(x, device) if isinstance(x, np.ndarray) else x
        self._y = torch.as_tensor(split.y_train, device=device)

    def numbers(self, rows: I64) -> Rows:
        """Return numbers of samples for `gather`: on the device, or unchanged for images on disk.

        They are sent together, as each later transfer would make the host wait for the device.
        """
        return to_tensor(rows, self.device) if isinstance(self._x, Tensor) else rows

    def gather(self, numbers: Rows) -> tuple[Tensor, Tensor]:
        """Return samples by their numbers, of any shape: x [*numbers, *shape] and y [*numbers]."""
        rows = numbers if isinstance(numbers, Tensor) else to_tensor(numbers, self.device)
        if isinstance(self._x, Tensor):
            # Indexed on the device, without a transfer.
            x = self._x[rows]
        else:
            read = to_tensor(self._x[np.asarray(numbers).reshape(-1)], self.device)
            x = read.view(*rows.shape, *read.shape[1:])
        return inputs(x, self.dtype), self._y[rows]

    def put(self, array: Floats) -> Tensor:
        """Return an array on the device, in the type of the arithmetic.

        Rows that are one row (`np.broadcast_to`) are sent once, and share its memory on the device.
        """
        if array.ndim > 1 and len(array) > 1 and not array.strides[0]:
            return self.put(array[:1]).expand(array.shape)
        return to_tensor(array, self.device).to(self.dtype)


def to_tensor(x: Array, device: str) -> Tensor:
    """Return an array on the device, through pinned memory where that is a GPU and the array is not large."""
    # An array that cannot be written to is copied, as torch has no tensors that are read only.
    tensor = torch.from_numpy(np.require(x, requirements=("C", "W")))
    is_pinned = device == "cuda" and tensor.nbytes <= MAX_PINNED_BYTES
    return tensor.pin_memory().to(device, non_blocking=True) if is_pinned else tensor.to(device)


def inputs(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return samples as a module takes them: tokens as long integers, and pixels 0 .. 255 as 0 .. 1."""
    if x.dtype in (torch.int16, torch.int32, torch.int64):
        return x.long()
    # In place is safe, as `to` has made a new tensor from the bytes. In step with `closed_form.floats`.
    return x.to(dtype).div_(255) if x.dtype == torch.uint8 else x.to(dtype)


def images(x: Tensor) -> Tensor:
    """Return samples as convolutions need them: images [n, c, h, w] with channels last, others unchanged."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a parameter in the vector."""

    name: str
    """Name of the parameter in the module."""
    start: int
    """Index of its first element."""
    end: int
    """Index after its last element."""
    shape: tuple[int, ...]
    """Shape in the module."""

    def view(self, flat: Tensor) -> Tensor:
        """Return the parameter as a view of a vector, in its shape."""
        part = flat[self.start : self.end]
        if len(self.shape) != 4:
            return part.view(self.shape)
        # Channels last in the vector, in torch's order of axes as a view.
        out, into, high, wide = self.shape
        return part.view(out, high, wide, into).permute(0, 3, 1, 2)


def slots(module: nn.Module, own: tuple[str, ...] = ()) -> list[Slot]:
    """Return the places of all trained parameters.

    Args:
        module: The module.
        own: Beginnings of the names of parameters that are not sent, which follow the others.
    """
    places, start = [], 0
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    # The sort is stable, so within both groups the module's order stays.
    for name, parameter in sorted(trained, key=lambda named: named[0].startswith(own) if own else False):
        places.append(Slot(name, start, start + parameter.numel(), tuple(parameter.shape)))
        start += parameter.numel()
    return places


class Workspace(threading.local):
    """A module for each thread, whose parameters are views of one vector: threading.local runs __init__ in
    each.

    The model was tried before (`facts`), so that no operation runs on torch's meta device here. For such
    operations torch imports its compiler, which takes over a second.

    Attributes:
        samples: Training samples on the device.
        module: The module.
        slots: Places of the trained parameters in the vector.
        d: Number of parameters that are sent, which come first.
        flat: The vector, [d + parameters that are not sent].
        parameters: Trained parameters, in the order of `slots`.
        own_start: Starting values of the parameters that are not sent.
        stepping: Layers that step their weights in the backward pass.
        others: Trained parameters that are not weights of such layers.
        dropouts: `Dropout` layers, each with the shape of its input for a sample.
        draws: Draws of the dropouts.
    """

    def __init__(self, model: Model, classes: int, samples: Samples) -> None:
        self.samples = samples
        self.module = blank(model, samples.shape, classes, tried=True, tokens=samples.tokens)
        self.slots = slots(self.module, model.own)
        self.d = sum(p.numel() for _, p in shared(self.module, model))
        self.flat = torch.zeros(self.slots[-1].end, device=samples.device, dtype=samples.dtype)
        self.parameters: list[nn.Parameter] = []
        for slot in self.slots:
            owner, _, leaf = slot.name.rpartition(".")
            # The parameter shares the vector's memory: a model is loaded, and read, by one copy of the
            # vector.
            parameter = nn.Parameter(slot.view(self.flat))
            setattr(self.module.get_submodule(owner), leaf, parameter)
            self.parameters.append(parameter)
        frozen = model.frozen()
        for name, p in list(self.module.named_parameters()):
            if not p.requires_grad:
                owner, _, leaf = name.rpartition(".")
                # Drawn under a key of its name: the same for all users, threads and runs, whatever other
                # parameters exist.
                layer, key = self.module.get_submodule(owner), hashlib.sha256(name.encode()).digest()
                start = (
                    frozen[name]
                    if name in frozen
                    else _start(layer, leaf, tuple(p.shape), generator(key[:16]))
                )
                content = samples.put(np.array(start, np.float32)).to(samples.dtype)
                setattr(layer, leaf, nn.Parameter(content, requires_grad=False))
        # Under a fixed key, so that parameters that are not sent start equally for all users and in each
        # round.
        self.own_start = self._all(bytes(16))[self.d :]
        # After the parameters are views: `others` is found by the identity of these.
        self.stepping = _install(self.module, samples.shape, samples.tokens)
        own = {id(layer.weight) for layer in self.stepping}
        self.others = [p for p in self.parameters if id(p) not in own]
        self.dropouts = dropouts(self.module, samples.shape, samples.tokens)
        self.draws = DropoutDraws(self.dropouts, samples.device, samples.dtype)

    def initial(self, seed: bytes) -> F32:
        """Return x^(0) [d]; see `_start`."""
        return self._all(seed[:16])[: self.d]

    def _all(self, key: bytes) -> F32:
        # In torch's default type and on the CPU, so that starting weights are the same for every arithmetic
        # and device.
        flat, draws = torch.zeros(len(self.flat)), generator(key)
        for slot in self.slots:
            owner, _, leaf = slot.name.rpartition(".")
            start = _start(self.module.get_submodule(owner), leaf, slot.shape, draws)
            slot.view(flat).copy_(torch.from_numpy(start))
        weights: F32 = flat.numpy()
        return weights

    def keep(self, masks: list[Tensor] | None) -> None:
        """Set the mask of each dropout for the next minibatch; None for no dropout."""
        for k, (layer, _) in enumerate(self.dropouts):
            layer.keep = None if masks is None else masks[k]

    def step_within(self, lr: float | None) -> None:
        """Set the step size of `Stepping` layers; None to give them gradients."""
        for layer in self.stepping:
            layer.lr = lr


def _start(layer: nn.Module, leaf: str, shape: Shape, draws: np.random.Generator) -> F32:
    """Return the starting values of a parameter, distributed as torch's.

    Weights are drawn by `kaiming`, recurrent ones uniform on +-1 / sqrt(hidden), embeddings standard normal.
    Scales of normalisation layers are one, biases zero.
    """
    if isinstance(layer, nn.Embedding):
        return draws.standard_normal(shape, np.float32)
    # Vectors: the scales of normalisation layers are named weight, and all others are biases.
    if len(shape) < 2:
        return np.full(shape, leaf == "weight", np.float32)
    weights = kaiming(draws, shape)
    return (
        # From the bound 1 / sqrt(fan-in) of `kaiming` to torch's 1 / sqrt(hidden).
        weights * np.float32((shape[1] / layer.hidden_size) ** 0.5)
        if isinstance(layer, nn.RNNBase)
        else weights
    )


class Stepping(nn.Linear):
    """`nn.Linear`; while `lr` is set, a backward pass steps the weights, which get no gradient.

    A fully connected layer holds most of a small CNN's parameters, and a minibatch is few rows. So to write
    the gradient of its weights and read it again costs about as much as to compute it. x <- x - lr g^T a adds
    the product to the weights in place instead. The gradient of the layer's input is taken before, from the
    old weights, so the step is that of SGD.
    """

    lr: float | None = None
    """Step size; None for a layer as torch's."""

    def forward(self, x: Tensor) -> Tensor:
        """Return W x + b of a batch of vectors."""
        if self.lr is None or not torch.is_grad_enabled():
            return super().forward(x)
        # Through .data, which autograd's check for changed tensors does not watch.
        step: Callable[..., Tensor] = _Step.apply
        return step(x, self.bias, self.weight.data, self.lr)


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, weight: Tensor, lr: float) -> Tensor:
        ctx.x, ctx.weight, ctx.lr = x, weight, lr
        return linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        # The input's gradient first, as it must be that of the old weights.
        down = g @ ctx.weight if ctx.needs_input_grad[0] else None
        ctx.weight.addmm_(g.t(), ctx.x, alpha=-ctx.lr)
        return down, g.sum(dim=0), None, None


def _install(module: nn.Module, shape: Shape, tokens: bool) -> list[Stepping]:
    """Turn large linear layers of a module into `Stepping` layers, and return them.

    A layer must be called once in a forward pass, on a batch of vectors: a second call would see stepped
    weights. It must have a bias, whose gradient makes autograd visit it even if it is the first layer.
    """
    linears = {name: layer for name, layer in module.named_modules() if type(layer) is nn.Linear}
    large = {
        name: layer
        for name, layer in linears.items()
        if layer.bias is not None and layer.weight.numel() >= MIN_STEPPING_WEIGHTS
    }
    calls = dry_pass(module, (2, *shape), large, tokens) if large else []
    for name, layer in large.items():
        if [given[0].dim() for called, given, _ in calls if called == name] == [2]:
            # The class alone changes: its parameters stay views of the vector.
            layer.__class__ = Stepping
    return [layer for layer in large.values() if isinstance(layer, Stepping)]
