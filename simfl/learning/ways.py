"""The ways in which a cohort is trained: each gives x_i^(E; t) [K, d] of K clients (LightSecAgg eq. 25).

The loop is the reference that the others are held to. They train clients side by side: those with a minibatch
at step s are a prefix of the cohort, so none is padded to the longest. Within a step shorter minibatches are
filled up with samples of weight zero.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from simfl.learning.data.dataset import I64
from simfl.learning.models.rules import BatchNorm
from simfl.learning.sgd import LocalSgd
from simfl.learning.workspace import Samples, Workspace, generator, images


class Draws:
    """A user's own draws in one local training: the order of its minibatches, and what dropout keeps."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise ValueError(f"a seed has {len(seed)} bytes, it must have 32")
        # On the CPU also for a GPU, so that both draw the same. The Mersenne Twister takes 32 bits of seed
        # and would ignore more; the order and the dropout have one each, so neither shifts the other.
        self._order, self._keep = generator(seed[:4]), generator(seed[4:8])

    def orders(self, n: int, epochs: int) -> Iterator[Tensor]:
        """Yield the samples 0 .. n - 1 in a new order for each epoch, to be cut into minibatches."""
        for _ in range(epochs if n else 0):
            yield torch.randperm(n, generator=self._order)

    def keep(self, samples: int, p: float, shape: tuple[int, ...]) -> Tensor:
        """Return the activations that a dropout of probability p keeps, 0 or 1, [samples, *shape]."""
        return torch.rand(samples, *shape, generator=self._keep).ge_(p)


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """K clients that are trained together, by falling number of samples: models x^(t) [K, d], the numbers of
    their samples, draws and step sizes."""

    starts: Tensor
    parts: Sequence[I64]
    draws: Sequence[Draws]
    sgd: LocalSgd
    lrs: Sequence[float]


class Schedule:
    """The minibatches of K clients in S steps.

    rows: [S, K, B] sample numbers of the data set. weights: [S, K, B], 1 / (size of the minibatch) for its
    samples and 0 for filling. sizes: [S, K]. active: the clients that have step s, [S]. lrs: step sizes [K].
    """

    def __init__(self, samples: Samples, cohort: Cohort) -> None:
        sgd, counts = cohort.sgd, np.array([len(part) for part in cohort.parts])
        width, per_epoch = min(sgd.batch_size, int(counts[0])), -(-counts // sgd.batch_size)
        most = int(sgd.epochs * per_epoch[0])
        rows = np.zeros((len(counts), most, width), np.int64)
        sizes = np.zeros((len(counts), most), np.int64)
        for k, (part, draws, batches) in enumerate(zip(cohort.parts, cohort.draws, per_epoch, strict=True)):
            for epoch, shuffled in enumerate(draws.orders(len(part), sgd.epochs)):
                steps = slice(epoch * batches, (epoch + 1) * batches)
                rows[k, steps].reshape(-1)[: len(part)] = part[shuffled.numpy()]
                sizes[k, steps] = width
                sizes[k, steps.stop - 1] = len(part) - (batches - 1) * width
        weights = (np.arange(width) < sizes[..., None]) / np.maximum(sizes, 1)[..., None]
        active = np.searchsorted(-sgd.epochs * per_epoch, -np.arange(most), side="left")
        self.rows = torch.from_numpy(rows.swapaxes(0, 1)).to(samples.device)
        self.weights = torch.from_numpy(weights.swapaxes(0, 1)).to(samples.device, samples.dtype)
        self.sizes, self.active = sizes.T, active.tolist()
        self.lrs = torch.tensor(cohort.lrs, dtype=samples.dtype, device=samples.device)

    def blocks(self, step: int, mixed: bool) -> Iterator[slice | list[int]]:
        """Yield the active clients of a step, in blocks of rows that can be computed together: all, if mixed
        sizes are; where batch statistics would see the filling, those of one size."""
        sizes = self.sizes[step, : self.active[step]]
        if mixed:
            yield slice(0, len(sizes))
        else:
            yield from (np.flatnonzero(sizes == size).tolist() for size in np.unique(sizes))


def loop(work: Workspace, cohort: Cohort) -> Tensor:
    """Train one client after the other."""
    return torch.stack([_alone(work, cohort, client) for client in range(len(cohort.parts))])


def _alone(work: Workspace, cohort: Cohort, client: int) -> Tensor:
    start, draws, lr, sgd = cohort.starts[client], cohort.draws[client], cohort.lrs[client], cohort.sgd
    work.flat.copy_(start)
    parameters = work.others if sgd.plain else work.parameters
    values = [parameter.data for parameter in parameters]
    work.step_within(lr if sgd.plain else None)
    velocity: list[Tensor] = []
    part, B = torch.from_numpy(cohort.parts[client]), sgd.batch_size
    epochs = (work.samples.gather(part[order]) for order in draws.orders(len(part), sgd.epochs))
    batches = (zip(torch.split(images(x), B), torch.split(y, B), strict=True) for x, y in epochs)
    for x, y in chain.from_iterable(batches):
        work.keep([draws.keep(len(y), layer.p, shape).to(x) for layer, shape in work.dropouts])
        loss = cross_entropy(work.module(x), y)
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
    work.keep(None)
    work.step_within(None)
    return work.flat.clone()


def vectorised(work: Workspace, cohort: Cohort) -> Tensor:
    """Train side by side: the gradient of one client, mapped over all of them by torch.func.vmap.

    For a GPU, where the loop waits for kernel launches; on a CPU it loses to the loop for convolutions.
    """
    plan, sgd = Schedule(work.samples, cohort), cohort.sgd
    flat, lr = cohort.starts.clone(), plan.lrs[:, None]
    x0 = cohort.starts if sgd.mu else None
    velocity = torch.zeros_like(flat) if sgd.momentum else None
    mixed = not any(isinstance(layer, BatchNorm) for layer in work.module.modules())

    def loss(weights: Tensor, x: Tensor, y: Tensor, share: Tensor, masks: list[Tensor]) -> Tensor:
        work.keep(masks)
        parameters = {slot.name: slot.view(weights) for slot in work.slots}
        logits = functional_call(work.module, parameters, (x,))
        return (cross_entropy(logits, y, reduction="none") * share).sum()

    gradients = vmap(grad(loss))
    for step, active in enumerate(plan.active):
        for block in plan.blocks(step, mixed):
            clients = range(active) if isinstance(block, slice) else block
            size = plan.rows.shape[2] if mixed else int(plan.sizes[step, clients[0]])
            x, y = work.samples.gather(plan.rows[step, block, :size])
            masks = _masks(work, plan, cohort, step, clients, x)
            g = gradients(flat[block], x, y, plan.weights[step, block, :size], masks)
            flat[block] -= lr[block] * _direction(g, flat, x0, velocity, block, sgd)
    work.keep(None)
    return flat


def _masks(
    work: Workspace, plan: Schedule, cohort: Cohort, step: int, clients: Sequence[int], x: Tensor
) -> list[Tensor]:
    """Return what each dropout keeps of x [clients, size, ...]: each client's own draws, and all filling."""
    masks = [torch.ones(*x.shape[:2], *shape) for _, shape in work.dropouts]
    for row, client in enumerate(clients):
        count, own = int(plan.sizes[step, client]), cohort.draws[client]
        for mask, (layer, shape) in zip(masks, work.dropouts, strict=True):
            mask[row, :count] = own.keep(count, layer.p, shape)
    return [mask.to(x) for mask in masks]


def closed_form(work: Workspace, cohort: Cohort) -> Tensor:
    """Train softmax regressions by the gradient in closed form.

    dL/dz = softmax(z) - onehot(y) for the logits z = W x + b of mean cross-entropy, so a step of K clients is
    three batched products. The bias is one more column of W, for an input that is always 1.
    """
    plan, starts, sgd = Schedule(work.samples, cohort), cohort.starts, cohort.sgd
    *_, last = work.module.children()
    assert isinstance(last, nn.Linear)
    K, inputs, classes = len(starts), last.in_features, last.out_features
    W = torch.cat([starts[:, :-classes].view(K, classes, inputs), starts[:, -classes:, None]], dim=2)
    x0 = W.clone() if sgd.mu else None
    velocity = torch.zeros_like(W) if sgd.momentum else None
    # One step size a client goes into the residuals, where it costs least.
    lr = plan.lrs[:, None, None]
    for step, active in enumerate(plan.active):
        rows = plan.rows[step, :active]
        x, y = work.samples.gather(rows)
        x = x.reshape(active, rows.shape[1], inputs)
        x = torch.cat([x, torch.ones_like(x[..., :1])], dim=2)
        residual = torch.bmm(x, W[:active].transpose(1, 2)).softmax(dim=2)
        residual.scatter_add_(2, y[..., None], torch.full_like(residual[..., :1], -1))
        residual *= plan.weights[step, :active, :, None]
        if sgd.plain:
            residual *= lr[:active]
            W[:active].baddbmm_(residual.transpose(1, 2), x, alpha=-1)
        else:
            g = torch.bmm(residual.transpose(1, 2), x)
            W[:active] -= lr[:active] * _direction(g, W, x0, velocity, slice(0, active), sgd)
    return torch.cat([W[:, :, :inputs].reshape(K, -1), W[:, :, inputs]], dim=1)


def _direction(
    g: Tensor, x: Tensor, x0: Tensor | None, velocity: Tensor | None, block: slice | list[int], sgd: LocalSgd
) -> Tensor:
    """Return v of `LocalSgd` for a block of clients with gradients g, which are used up."""
    if sgd.weight_decay + sgd.mu:
        g.add_(x[block], alpha=sgd.weight_decay + sgd.mu)
    if x0 is not None:
        g.sub_(x0[block], alpha=sgd.mu)
    if velocity is not None:
        velocity[block] = g = velocity[block].mul(sgd.momentum).add_(g)
    return g
