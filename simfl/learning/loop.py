"""Training one client after the other: the reference that the other ways are held to."""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from simfl.learning.draws import Draws
from simfl.learning.flat import Workspace, images, step_within
from simfl.learning.samples import Samples
from simfl.learning.sgd import LocalSgd


def train(
    work: Workspace, start: Tensor, samples: Samples, user: int, draws: Draws, sgd: LocalSgd, lr: float
) -> Tensor:
    """x_i^(E; t) [d], from x^(t) = start [d] (LightSecAgg eq. 25). The result is the workspace's own."""
    work.flat.copy_(start)
    parameters = work.others if sgd.plain else work.parameters
    values = [parameter.data for parameter in parameters]
    step_within(work, lr if sgd.plain else None)
    velocity: list[Tensor] = []
    part, B = torch.from_numpy(samples.parts[user]), sgd.batch_size
    epochs = (samples.gather(part[order]) for order in draws.orders(len(part), sgd.epochs))
    batches = (zip(torch.split(images(x), B), torch.split(y, B), strict=True) for x, y in epochs)
    for x, y in chain.from_iterable(batches):
        work.keep([draws.keep(len(y), p, shape).to(x) for _, p, shape in work.dropouts])
        loss = cross_entropy(work.module(x), y)
        gradients = list(torch.autograd.grad(loss, parameters))
        if not sgd.plain:
            gradients = velocity = _direction(work, start, values, gradients, velocity, sgd)
        torch._foreach_add_(values, gradients, alpha=-lr)
    work.keep(None)
    step_within(work, None)
    return work.flat


def _direction(
    work: Workspace,
    start: Tensor,
    values: list[Tensor],
    gradients: list[Tensor],
    velocity: list[Tensor],
    sgd: LocalSgd,
) -> list[Tensor]:
    """v of `LocalSgd`, in place of the gradients."""
    if sgd.weight_decay + sgd.mu:
        torch._foreach_add_(gradients, values, alpha=sgd.weight_decay + sgd.mu)
    if sgd.mu:
        torch._foreach_add_(gradients, [slot.view(start) for slot in work.slots], alpha=-sgd.mu)
    if sgd.momentum and velocity:
        torch._foreach_add_(gradients, velocity, alpha=sgd.momentum)
    return gradients
