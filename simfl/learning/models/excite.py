"""Squeeze and excitation: channels weighted by what the whole image holds.

Hu, Shen and Sun 2018, "Squeeze-and-excitation networks", eqs. 2-4.
"""

from __future__ import annotations

from torch import Tensor, nn


class Excite(nn.Module):
    """x s, where s = gate(W2 act(W1 mean(x) + b1) + b2): [n, channels, h, w] to the same shape."""

    def __init__(self, channels: int, squeezed: int, act: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.scale = nn.Sequential(nn.Linear(channels, squeezed), act, nn.Linear(squeezed, channels), gate)

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.scale(x.mean((2, 3)))
        return x * s[:, :, None, None]
