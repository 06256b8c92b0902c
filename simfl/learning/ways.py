"""The ways in which a cohort is trained: each gives x_i^(E; t) [K, d] of K clients (LightSecAgg eq. 25).

The loop is the reference that the others are held to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from simfl.learning.minibatches import Cohort, Samples, Schedule, schedule
from simfl.learning.models.layers import BatchNorm
from simfl.learning.sgd import LocalSgd
from simfl.learning.workspace import Workspace, images


def loop(work: Workspace, samples: Samples, cohort: Cohort) -> Tensor:
    """Train one client after the other."""
    clients = range(len(cohort.users))
    return torch.stack([_alone(work, samples, cohort, client) for client in clients])


def _alone(work: Workspace, samples: Samples, cohort: Cohort, client: int) -> Tensor:
    start, draws, lr, sgd = cohort.starts[client], cohort.draws[client], cohort.lrs[client], cohort.sgd
    work.flat.copy_(start)
    parameters = work.others if sgd.plain else work.parameters
    values = [parameter.data for parameter in parameters]
    work.step_within(lr if sgd.plain else None)
    velocity: list[Tensor] = []
    part, B = torch.from_numpy(samples.parts[cohort.users[client]]), sgd.batch_size
    epochs = (samples.gather(part[order]) for order in draws.orders(len(part), sgd.epochs))
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


def vectorised(work: Workspace, samples: Samples, cohort: Cohort) -> Tensor:
    """Train side by side: the gradient of one client, mapped over all of them by torch.func.vmap.

    For a GPU, where the loop waits for kernel launches; on a CPU it loses to the loop for convolutions.
    """
    plan, sgd = schedule(samples, cohort), cohort.sgd
    flat, lr = cohort.starts[plan.order], _step_sizes(cohort, plan)[:, None]
    x0 = flat.clone() if sgd.mu else None
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
            x, y = samples.gather(plan.rows[step, block, :size])
            masks = _masks(work, plan, cohort, step, clients, x)
            g = gradients(flat[block], x, y, plan.weights[step, block, :size], masks)
            flat[block] -= lr[block] * _direction(g, flat, x0, velocity, block, sgd)
    work.keep(None)
    return flat[plan.place]


def _masks(
    work: Workspace, plan: Schedule, cohort: Cohort, step: int, clients: Sequence[int], x: Tensor
) -> list[Tensor]:
    """Return what each dropout keeps of x [clients, size, ...]: each client's own draws, and all filling."""
    masks = [torch.ones(*x.shape[:2], *shape) for _, shape in work.dropouts]
    for row, client in enumerate(clients):
        count, own = int(plan.sizes[step, client]), cohort.draws[plan.order[client]]
        for mask, (layer, shape) in zip(masks, work.dropouts, strict=True):
            mask[row, :count] = own.keep(count, layer.p, shape)
    return [mask.to(x) for mask in masks]


def closed_form(work: Workspace, samples: Samples, cohort: Cohort) -> Tensor:
    """Train softmax regressions by the gradient in closed form.

    dL/dz = softmax(z) - onehot(y) for the logits z = W x + b of mean cross-entropy, so a step of K clients is
    three batched products. The bias is one more column of W, for an input that is always 1.
    """
    plan, sgd = schedule(samples, cohort), cohort.sgd
    starts = cohort.starts[plan.order]
    *_, last = work.module.children()
    assert isinstance(last, nn.Linear)
    K, inputs, classes = len(starts), last.in_features, last.out_features
    W = torch.cat([starts[:, :-classes].view(K, classes, inputs), starts[:, -classes:, None]], dim=2)
    x0 = W.clone() if sgd.mu else None
    velocity = torch.zeros_like(W) if sgd.momentum else None
    # One step size a client goes into the residuals, where it costs least.
    lr = _step_sizes(cohort, plan)[:, None, None]
    for step, active in enumerate(plan.active):
        rows = plan.rows[step, :active]
        x, y = samples.gather(rows)
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
    return torch.cat([W[:, :, :inputs].reshape(K, -1), W[:, :, inputs]], dim=1)[plan.place]


def _step_sizes(cohort: Cohort, plan: Schedule) -> Tensor:
    lrs = [cohort.lrs[client] for client in plan.order]
    return torch.tensor(lrs, dtype=cohort.starts.dtype, device=cohort.starts.device)


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
