"""A cohort trained side by side: the gradient of one client, mapped over all of them by torch.func.vmap.

What a GPU wants, where the loop waits for kernel launches; on a CPU it loses to the loop for convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from simfl.learning.cohort import Schedule, blocks, schedule
from simfl.learning.draws import Draws
from simfl.learning.flat import Workspace
from simfl.learning.models.batch_norm import BatchNorm
from simfl.learning.samples import Samples
from simfl.learning.sgd import LocalSgd


def train(
    work: Workspace,
    starts: Tensor,
    samples: Samples,
    users: Sequence[int],
    draws: Sequence[Draws],
    sgd: LocalSgd,
    lrs: Sequence[float],
) -> Tensor:
    """x_i^(E; t) [K, d] of K clients, from starts [K, d] (LightSecAgg eq. 25)."""
    plan = schedule(samples, users, draws, sgd)
    order = torch.tensor(plan.order, device=starts.device)
    flat = starts[order]
    x0 = flat.clone() if sgd.mu else None
    v = torch.zeros_like(flat) if sgd.momentum else None
    lr = torch.tensor([lrs[k] for k in plan.order], dtype=starts.dtype, device=starts.device)[:, None]
    mixed = not any(isinstance(layer, BatchNorm) for layer in work.module.modules())

    def loss(weights: Tensor, x: Tensor, y: Tensor, share: Tensor, masks: list[Tensor]) -> Tensor:
        work.keep(masks)
        parameters = {slot.name: slot.view(weights) for slot in work.slots}
        logits = functional_call(work.module, parameters, (x,))
        return (cross_entropy(logits, y, reduction="none") * share).sum()

    gradients = vmap(grad(loss))
    for step in range(len(plan.active)):
        for block in blocks(plan, step, mixed):
            clients = range(plan.active[step]) if isinstance(block, slice) else block
            size = plan.rows.shape[2] if mixed else int(plan.sizes[step, clients[0]])
            x, y = samples.gather(plan.rows[step, block, :size])
            masks = _masks(work, plan, step, clients, size, draws, x)
            g = gradients(flat[block], x, y, plan.weights[step, block, :size], masks)
            if sgd.weight_decay + sgd.mu:
                g.add_(flat[block], alpha=sgd.weight_decay + sgd.mu)
            if x0 is not None:
                g.sub_(x0[block], alpha=sgd.mu)
            if v is not None:
                v[block] = g = v[block].mul(sgd.momentum).add_(g)
            flat[block] -= lr[block] * g
    work.keep(None)
    trained = torch.empty_like(starts)
    trained[order] = flat
    return trained


def _masks(
    work: Workspace,
    plan: Schedule,
    step: int,
    clients: Sequence[int],
    size: int,
    draws: Sequence[Draws],
    like: Tensor,
) -> list[Tensor]:
    """What each dropout keeps, [clients, size, *shape]: each client's from its own draws, filling kept."""
    masks = [torch.ones(len(clients), size, *shape) for _, _, shape in work.dropouts]
    for row, client in enumerate(clients):
        count, own = int(plan.sizes[step, client]), draws[plan.order[client]]
        for mask, (_, p, shape) in zip(masks, work.dropouts, strict=True):
            mask[row, :count] = own.keep(count, p, shape)
    return [mask.to(like) for mask in masks]
