"""Local SGD as users run it: its parameters, and the ways in which cohorts of users are trained.

The ways give the same updates up to rounding. Which is fastest is known by the model and the device
(docs/performance.md), so nothing is measured in a user's run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WayName = Literal["loop", "vectorised", "closed_form"]

CHUNK = 64
"""Clients that are trained side by side: what more of them gain is little, what they take is memory."""


@dataclass(frozen=True, slots=True)
class LocalSgd:
    """E epochs of minibatch SGD (LightSecAgg eq. 25), as torch.optim.SGD takes its steps.

    v <- momentum v + g + weight_decay x + mu (x - x^(t)), x <- x - lr v, from v = 0 in every round. The
    last term is FedProx's (Li et al. 2020, eq. 2). lr is multiplied by `decay` at each round in `decay_at`
    (Multi-RoundSecAgg App. F: 0.4 at 400 and 800).

    >>> LocalSgd(epochs=1, batch_size=10, lr=0.8, decay=0.5, decay_at=(3, 6)).lr_at(4)
    0.4
    """

    epochs: int
    batch_size: int
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    mu: float = 0.0
    decay: float = 1.0
    decay_at: tuple[int, ...] = ()

    def lr_at(self, index: int) -> float:
        """Return eta_l in round `index`."""
        return self.lr * self.decay ** sum(at <= index for at in self.decay_at)

    @property
    def plain(self) -> bool:
        """Say if a step is x <- x - lr g and nothing else."""
        return not (self.momentum or self.weight_decay or self.mu)

    def steps(self, n: int) -> int:
        """Return the minibatches of one local training on n samples, E ceil(n / batch_size)."""
        return self.epochs * -(-n // self.batch_size)


@dataclass(frozen=True, slots=True)
class Way:
    """A way of training, and the clients that it takes at a time."""

    name: WayName
    chunk: int

    def __str__(self) -> str:
        if self.name == "loop":
            return "one client after the other"
        return f"{self.name.replace('_', ' ')}, {self.chunk} clients at a time"


def way_of(asked: WayName | Literal["auto"], softmax: bool, device: str) -> Way:
    """Return the way that was asked for, or the fastest for a model (softmax regression or not) on a device.

    On a CPU several networks side by side are slower than one after the other: grouped convolutions have no
    fast kernel there. On a GPU small networks leave most of it idle, so they are trained side by side.
    """
    if asked == "auto":
        asked = "closed_form" if softmax else "vectorised" if device == "cuda" else "loop"
    return Way(asked, 1 if asked == "loop" else CHUNK)
