"""A cohort of softmax regressions, by the gradient in closed form.

dL/dz = softmax(z) - onehot(y) for the logits z = W x + b of mean cross-entropy, so a step of K clients is
three batched products. The bias is one more column of W, for an input that is always 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from simfl.learning.cohort import schedule
from simfl.learning.draws import Draws
from simfl.learning.samples import Samples
from simfl.learning.sgd import LocalSgd


def fits(module: nn.Module) -> bool:
    """Whether a module is softmax regression: a flattening and one linear layer with bias."""
    layers = list(module.children())
    return (
        isinstance(module, nn.Sequential)
        and len(layers) == 2
        and isinstance(layers[0], nn.Flatten)
        and isinstance(layers[1], nn.Linear)
        and layers[1].bias is not None
    )


def train(
    starts: Tensor,
    samples: Samples,
    users: Sequence[int],
    draws: Sequence[Draws],
    sgd: LocalSgd,
    lrs: Sequence[float],
    classes: int,
) -> Tensor:
    """x_i^(E; t) [K, d] of K clients, from starts [K, d] (LightSecAgg eq. 25)."""
    plan = schedule(samples, users, draws, sgd)
    K, inputs = len(users), starts.shape[1] // classes - 1
    order = torch.tensor(plan.order, device=starts.device)
    W = torch.empty(K, classes, inputs + 1, dtype=starts.dtype, device=starts.device)
    W[:, :, :inputs] = starts[order, : classes * inputs].view(K, classes, inputs)
    W[:, :, inputs] = starts[order, classes * inputs :]
    x0 = None if sgd.plain else W.clone()
    v = torch.zeros_like(W) if sgd.momentum else None
    # One step size a client goes into the residuals, where it costs least.
    lr = torch.tensor([lrs[k] for k in plan.order], dtype=starts.dtype, device=starts.device)[:, None, None]
    for step, active in enumerate(plan.active):
        rows = plan.rows[step, :active]
        x, y = samples.gather(rows)
        x = x.reshape(active, rows.shape[1], inputs)
        x = torch.cat([x, torch.ones_like(x[..., :1])], dim=2)
        residual = torch.bmm(x, W[:active].transpose(1, 2)).softmax(dim=2)
        residual.scatter_add_(2, y[..., None], torch.full_like(residual[..., :1], -1))
        residual *= plan.weights[step, :active, :, None]
        if x0 is None:
            residual *= lr[:active]
            W[:active].baddbmm_(residual.transpose(1, 2), x, alpha=-1)
            continue
        g = torch.bmm(residual.transpose(1, 2), x)
        g.add_(W[:active], alpha=sgd.weight_decay + sgd.mu).sub_(x0[:active], alpha=sgd.mu)
        if v is not None:
            g = v[:active].mul_(sgd.momentum).add_(g)
        W[:active] -= lr[:active] * g
    trained = torch.empty_like(starts)
    trained[order] = torch.cat([W[:, :, :inputs].reshape(K, -1), W[:, :, inputs]], dim=1)
    return trained
