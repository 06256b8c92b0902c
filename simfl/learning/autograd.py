"""Networks trained by torch's autograd: the loop, which the closed form and the cohort are held to, and a
cohort side by side."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from math import prod

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from simfl.learning.data.dataset import F32, I64, Array, Dtype, Floats, Split
from simfl.learning.losses import Loss
from simfl.learning.minibatches import Cohort, Keep, Schedule, keep, orders
from simfl.learning.models.model import Model
from simfl.learning.models.rules import BatchNorm
from simfl.learning.on_device import saved_values
from simfl.learning.workspace import Samples, Workspace, images, inputs, to_tensor


class Autograd:
    """Any model on a split; safe for several threads at once, of which each has a workspace of its own."""

    def __init__(
        self, model: Model, split: Split, device: str, dtype: Dtype, side_by_side: bool, loss: Loss
    ) -> None:
        self._cohort, self.loss = vectorised if side_by_side else loop, loss
        self.work = Workspace(model, split.classes, Samples(split, device, dtype))

    def saved(self) -> int:
        """Return the numbers of a sample in a training step: those of `saved_values`, and dropouts' masks."""
        masks = sum(prod(shape) for _, shape in self.work.dropouts)
        samples = self.work.samples
        return saved_values(self.work.module, samples.shape, samples.tokens) + 2 * masks

    def initial(self, seed: bytes) -> F32:
        return self.work.initial(seed)

    def train(self, cohort: Cohort) -> Floats:
        """Return x_i^(E; t) [K, d] of K clients (LightSecAgg eq. 25)."""
        d = cohort.starts.shape[1]
        whole = replace(cohort, starts=self._with_own(cohort.starts))
        trained: Floats = self._cohort(self.work, whole, self.loss)[:, :d].cpu().numpy()
        return trained

    def _with_own(self, weights: Floats) -> Floats:
        """Return models [K, d] with the parameters behind them that users do not send, at their start."""
        own = self.work.own_start.astype(weights.dtype)
        return np.concatenate([weights, np.tile(own, (len(weights), 1))], axis=1) if len(own) else weights

    def losses(self, logits: Floats, y: I64) -> Floats:
        """Return the loss of each sample [n]."""
        found: Floats = self.loss(torch.from_numpy(logits), torch.from_numpy(y)).numpy()
        return found

    def logits(self, weights: Floats, x: Array) -> Floats:
        """Return the logits [n, classes] of samples under a model [d]; batch statistics are those of x."""
        work, samples = self.work, self.work.samples
        work.flat.copy_(samples.put(self._with_own(weights[None])[0]))
        with torch.no_grad():
            z: Floats = work.module(images(inputs(to_tensor(x, samples.device), samples.dtype))).cpu().numpy()
        return z


def loop(work: Workspace, cohort: Cohort, loss_of: Loss) -> Tensor:
    """Train one client after the other."""
    return torch.stack([_alone(work, cohort, client, loss_of) for client in range(len(cohort.parts))])


def _alone(work: Workspace, cohort: Cohort, client: int, loss_of: Loss) -> Tensor:
    start, seed = work.samples.put(cohort.starts[client]), cohort.seeds[client]
    lr, sgd, kept = cohort.lrs[client], cohort.sgd, keep(seed)
    work.flat.copy_(start)
    parameters = work.others if sgd.plain else work.parameters
    values = [parameter.data for parameter in parameters]
    work.step_within(lr if sgd.plain else None)
    velocity: list[Tensor] = []
    part, B = cohort.parts[client], sgd.batch_size
    rows = work.samples.numbers(part[orders(seed, len(part), sgd.epochs)])
    epochs = map(work.samples.gather, rows)
    batches = (zip(torch.split(images(x), B), torch.split(y, B), strict=True) for x, y in epochs)
    for done, (x, y) in enumerate(islice(chain.from_iterable(batches), cohort.steps[client]), 1):
        work.keep([work.samples.put(kept(len(y), layer.p, shape)) for layer, shape in work.dropouts])
        loss = loss_of.mean(work.module(x), y)
        gradients = list(torch.autograd.grad(loss, parameters))
        if sgd.weight_decay + sgd.mu:
            torch._foreach_add_(gradients, values, alpha=sgd.weight_decay + sgd.mu)
        if sgd.mu:
            torch._foreach_add_(gradients, [slot.view(start) for slot in work.slots], alpha=-sgd.mu)
        if sgd.momentum:
            if velocity:
                torch._foreach_add_(gradients, velocity, alpha=sgd.momentum)
            velocity = gradients
        torch._foreach_add_(values, gradients, alpha=-lr)
        if cohort.over(done):
            break
    work.keep(None)
    work.step_within(None)
    return work.flat.clone()


def vectorised(work: Workspace, cohort: Cohort, loss_of: Loss) -> Tensor:
    """Train side by side: the gradient of one client, mapped over all of them by torch.func.vmap.

    For a GPU, where the loop waits for kernel launches; on a CPU it loses to the loop for convolutions.
    """
    plan, sgd, put = Schedule(cohort), cohort.sgd, work.samples.put
    x0, lr, shares = put(cohort.starts), put(np.array(cohort.lrs)[:, None]), put(plan.weights)
    flat, kept, rows = x0.clone(), list(map(keep, cohort.seeds)), work.samples.numbers(plan.rows)
    velocity = torch.zeros_like(x0) if sgd.momentum else None
    mixed = not any(isinstance(layer, BatchNorm) for layer in work.module.modules())

    def loss(weights: Tensor, x: Tensor, y: Tensor, share: Tensor, masks: list[Tensor]) -> Tensor:
        work.keep(masks)
        parameters = {slot.name: slot.view(weights) for slot in work.slots}
        logits = functional_call(work.module, parameters, (x,))
        return (loss_of(logits, y) * share).sum()

    gradients = vmap(grad(loss))
    for step, active in enumerate(plan.active):
        for block in plan.blocks(step, mixed):
            clients = range(active) if isinstance(block, slice) else block
            size = plan.rows.shape[2] if mixed else int(plan.sizes[step, clients[0]])
            x, y = work.samples.gather(rows[step, block, :size])
            masks = _masks(work, plan, kept, step, clients, x)
            g = gradients(flat[block], x, y, shares[step, block, :size], masks)
            if sgd.weight_decay + sgd.mu:
                g += (sgd.weight_decay + sgd.mu) * flat[block] - sgd.mu * x0[block]
            if velocity is not None:
                velocity[block] = g = sgd.momentum * velocity[block] + g
            flat[block] -= lr[block] * g
        if cohort.over(step + 1):
            break
    work.keep(None)
    return flat


def _masks(
    work: Workspace, plan: Schedule, kept: Sequence[Keep], step: int, clients: Sequence[int], x: Tensor
) -> list[Tensor]:
    """Return what each dropout keeps of x [clients, size, ...]: each client's own draws, and all filling."""
    masks = [np.ones((*x.shape[:2], *shape), np.float32) for _, shape in work.dropouts]
    for row, client in enumerate(clients):
        count = int(plan.sizes[step, client])
        for mask, (layer, shape) in zip(masks, work.dropouts, strict=True):
            mask[row, :count] = kept[client](count, layer.p, shape)
    return [work.samples.put(mask) for mask in masks]
