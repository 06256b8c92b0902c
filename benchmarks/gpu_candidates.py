"""Ways of training on a GPU that are not in the product, for `make gpu` to hold against those that are.

A way is a function of a workspace, a cohort and a loss that gives the trained models [K, d], as
`simfl.learning.autograd.vectorised` is. It comes into the product if a measurement shows that it wins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import group_norm, pad

from simfl.learning.autograd import side_by_side
from simfl.learning.dropout_draws import round_keys
from simfl.learning.losses import Loss
from simfl.learning.minibatches import Cohort, schedules
from simfl.learning.models import Model
from simfl.learning.models.rules import BatchNorm
from simfl.learning.workspace import Slot, Workspace, images, to_tensor

STREAMS = 8
"""Clients that are trained at a time under CUDA graphs."""


# -- per-client weights as batched products


def batched(work: Workspace, cohort: Cohort, loss_of: Loss) -> Tensor:
    """Train side by side with every layer's weights [K, ...] in one batched product, to which a convolution
    is unfolded. ValueError for a model with other layers that have parameters."""

    def gradients(flat: Tensor, x: Tensor, y: Tensor, shares: Tensor, masks: list[Tensor]) -> Tensor:
        work.keep([mask.flatten(0, 1) for mask in masks])
        leaves = [_of_each(slot, flat).detach().requires_grad_() for slot in work.slots]
        named = {slot.name: leaf for slot, leaf in zip(work.slots, leaves, strict=True)}
        logits = functional_call(work.module, named, (images(x.flatten(0, 1)),))
        total = (loss_of(logits, y.flatten()) * shares.flatten()).sum()
        return torch.cat([g.flatten(1) for g in torch.autograd.grad(total, leaves)], dim=1)

    with _in_products(work.module):
        return side_by_side(work, cohort, gradients)


def _of_each(slot: Slot, flat: Tensor) -> Tensor:
    """Return a parameter of all clients as it lies in their vectors [K, d]: kernels channels last."""
    part, shape = flat[:, slot.start : slot.end], slot.shape
    return part.unflatten(1, (shape[0], *shape[2:], shape[1]) if len(shape) == 4 else shape)


@contextmanager
def _in_products(module: nn.Module) -> Iterator[None]:
    """Let a module's layers take K clients' samples [K n, ...] and weights [K, ...]."""
    layers = [layer for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None]
    for layer in layers:
        if not (known := [forward for kind, forward in _PRODUCTS.items() if isinstance(layer, kind)]):
            raise ValueError(f"batched products have no layer {type(layer).__name__}")
        layer.forward = partial(known[0], layer)
    try:
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    W, b = layer.weight, layer.bias
    rows = x.view(len(W), -1, x.shape[-1])
    y = torch.baddbmm(b[:, None], rows, W.mT) if b is not None else rows @ W.mT
    return y.view(*x.shape[:-1], W.shape[1])


def _convolution(layer: nn.Conv2d, x: Tensor) -> Tensor:
    if layer.groups > 1 or layer.dilation != (1, 1) or layer.padding_mode != "zeros":
        raise ValueError("batched products have no grouped or dilated convolution")
    W, b = layer.weight, layer.bias
    K, out, high, wide, _ = W.shape
    (top, left), (down, right) = layer.padding, layer.stride
    patches = pad(x.permute(0, 2, 3, 1), (0, 0, left, left, top, top))
    patches = patches.unfold(1, high, down).unfold(2, wide, right).permute(0, 1, 2, 4, 5, 3)
    rows, kernels = patches.reshape(K, -1, W[0, 0].numel()), W.flatten(2)
    y = torch.baddbmm(b[:, None], rows, kernels.mT) if b is not None else rows @ kernels.mT
    return y.view(*patches.shape[:3], out).permute(0, 3, 1, 2)


def _group_norm(layer: nn.GroupNorm, x: Tensor) -> Tensor:
    W, b = layer.weight[:, None, :, None, None], layer.bias[:, None, :, None, None]
    y = group_norm(x, layer.num_groups, eps=layer.eps)
    return (y.unflatten(0, (len(W), -1)) * W + b).flatten(0, 1)


_PRODUCTS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Linear: _linear, nn.Conv2d: _convolution, nn.GroupNorm: _group_norm,
}  # fmt: skip


# -- the loop under CUDA graphs, on several streams


class Lane:
    """A client's minibatch step on tensors that stay where they are, as a CUDA graph needs it.

    All minibatches are filled up to one size by samples of weight zero, and a number on the device tells the
    step its own: a client is a few copies, and a replay for each minibatch."""

    def __init__(self, work: Workspace, loss_of: Loss, steps: int, width: int) -> None:
        device, whole = work.samples.device, torch.int64
        self.work, self.loss_of = work, loss_of
        self.values = [parameter.data for parameter in work.parameters]
        self.stream = torch.cuda.Stream() if device == "cuda" else None
        self.rows = torch.zeros((steps, width), dtype=whole, device=device)
        self.keys = torch.zeros((10, 2), dtype=whole, device=device)
        self.shares, self.lr = work.flat.new_zeros(steps, width), work.flat.new_zeros(())
        self.step = torch.zeros(1, dtype=whole, device=device)

    def minibatch(self) -> None:
        work, width = self.work, self.rows.shape[1]
        x, y = work.samples.gather(self.rows.index_select(0, self.step)[0])
        shares = self.shares.index_select(0, self.step)[0]
        work.keep(work.draws.kept(self.keys, self.step, width))
        loss = (self.loss_of(work.module(images(x)), y) * shares).sum()
        gradients = torch.autograd.grad(loss, work.parameters)
        torch._foreach_sub_(self.values, torch._foreach_mul(gradients, self.lr))
        self.step += 1

    def begin(self, start: Tensor, rows: Tensor, shares: Tensor, keys: Tensor, lr: Tensor) -> None:
        """Take a client: its model, its minibatches [steps, width] and their weights, keys, and step size."""
        self.work.flat.copy_(start)
        self.rows.copy_(rows)
        self.shares.copy_(shares)
        self.keys.copy_(keys)
        self.lr.copy_(lr)
        self.step.zero_()


def captured(lane: Lane) -> Callable[[], None]:
    """Return the replay of a lane's minibatch, recorded on its stream once it was made there without a graph.

    Each lane records on a stream of its own, as cuBLAS has a workspace for each, and lanes run at once."""
    ready = torch.cuda.current_stream()
    lane.stream.wait_stream(ready)
    with torch.cuda.stream(lane.stream):
        for _ in range(3):
            lane.step.zero_()
            lane.minibatch()
        lane.step.zero_()
    ready.wait_stream(lane.stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=lane.stream):
        lane.minibatch()
    replay: Callable[[], None] = graph.replay
    return replay


class Graphs:
    """The loop with a CUDA graph for each minibatch step, and clients dealt to several streams.

    ValueError on a CPU, and for what a fixed step of a full minibatch cannot be."""

    def __init__(
        self,
        model: Model,
        classes: int,
        streams: int = STREAMS,
        record: Callable[[Lane], Callable[[], None]] = captured,
    ) -> None:
        self._model, self._classes, self._streams, self._record = model, classes, streams, record
        self._lanes: dict[tuple[int, int], list[tuple[Lane, Callable[[], None]]]] = {}

    def __call__(self, work: Workspace, cohort: Cohort, loss_of: Loss) -> Tensor:
        samples, normed = work.samples, any(isinstance(layer, BatchNorm) for layer in work.module.modules())
        if self._record is captured and samples.device != "cuda":
            raise ValueError("CUDA graphs need a GPU")
        if normed or not cohort.sgd.plain:
            raise ValueError("the graphs are of plain SGD, without batch statistics")
        (plan,), put = schedules(cohort, sys.maxsize), samples.put
        starts, shares, lrs = put(cohort.starts), put(plan.weights), put(np.array(cohort.lrs))
        rows, keys = samples.numbers(plan.rows), to_tensor(round_keys(cohort.seeds), samples.device)
        trained, lanes = torch.empty_like(starts), self._made(work, loss_of, rows.shape[0], rows.shape[2])
        for lane, _ in lanes:
            if lane.stream:
                lane.stream.wait_stream(torch.cuda.current_stream())
        for client, steps in enumerate(cohort.steps):
            lane, replay = lanes[client % len(lanes)]
            with torch.cuda.stream(lane.stream) if lane.stream else nullcontext():
                own = starts[client], rows[:, client], shares[:, client], keys[..., client], lrs[client]
                lane.begin(*own)
                for _ in range(steps):
                    replay()
                trained[client].copy_(lane.work.flat)
        for lane, _ in lanes:
            if lane.stream:
                torch.cuda.current_stream().wait_stream(lane.stream)
        return trained

    def _made(
        self, work: Workspace, loss_of: Loss, steps: int, width: int
    ) -> list[tuple[Lane, Callable[[], None]]]:
        """Return the lanes for so many steps of such minibatches, recorded the first time."""
        if (steps, width) not in self._lanes:
            lanes = [
                Lane(Workspace(self._model, self._classes, work.samples), loss_of, steps, width)
                for _ in range(self._streams)
            ]
            self._lanes[steps, width] = [(lane, self._record(lane)) for lane in lanes]
        return self._lanes[steps, width]
