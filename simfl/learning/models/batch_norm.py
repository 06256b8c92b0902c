"""Batch normalisation without running statistics.

The policy: running statistics are buffers, which SGD does not train, so they are neither aggregated nor
masked, and there are none. Every batch-norm layer normalises with the mean and variance of the batch that
it sees, in training and in evaluation alike. That is static batch normalisation (HeteroFL, Diao, Ding and
Tarokh 2021, section 3) without its last pass over the users' data: evaluation sees large batches instead.
Scale and shift are ordinary parameters.

Ioffe and Szegedy 2015, "Batch normalization: accelerating deep network training by reducing internal
covariate shift", Algorithm 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BatchNorm(nn.Module):
    """y = weight (x - mean) / sqrt(var + eps) + bias, per channel over the batch and all positions.

    Maps [n, channels, ...] to the same shape; var is the biased variance. One value a channel, as in a batch
    of one sample without positions, has no variance: it gives `bias`. No buffers, no randomness, and no
    difference between training and evaluation.
    """

    def __init__(self, channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels)) if affine else None
        self.bias = nn.Parameter(torch.zeros(channels)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        # nn.functional.batch_norm refuses one value a channel.
        cudnn = torch.backends.cudnn.enabled
        return torch.batch_norm(x, self.weight, self.bias, None, None, True, 0.0, self.eps, cudnn)
