"""Local SGD as a user runs it: its parameters, and the draws that its own stream decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LocalSgd:
    """E epochs of minibatch SGD (LightSecAgg eq. 25), as torch.optim.SGD takes its steps.

    v <- momentum v + g + weight_decay x + mu (x - x^(t)), x <- x - lr v, from v = 0 in every round. The
    last term is FedProx's (Li et al. 2020, eq. 2). lr is multiplied by `decay` at each round in `decay_at`
    (Multi-RoundSecAgg App. F: 0.4 at 400 and 800).
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
        """eta_l in round `index`."""
        return self.lr * self.decay ** sum(at <= index for at in self.decay_at)

    @property
    def plain(self) -> bool:
        """Whether a step is x <- x - lr g and nothing else."""
        return not (self.momentum or self.weight_decay or self.mu)

    def steps(self, n: int) -> int:
        """Minibatches in one local training on n samples, E ceil(n / batch_size)."""
        return self.epochs * -(-n // self.batch_size)


Seed = bytes
"""32 bytes: all that a user draws in one local training comes from them."""


class Draws:
    """A user's own draws: the order of its minibatches, and what dropout keeps."""

    def __init__(self, seed: Seed) -> None:
        if len(seed) != 32:
            raise ValueError(f"a seed has {len(seed)} bytes, it must have 32")
        # On the CPU also for a GPU, so that both draw the same. The Mersenne Twister takes 32 bits of seed
        # and would ignore more; the order and the dropout have one each, so neither shifts the other.
        self._order = _generator(seed[:4])
        self._keep = _generator(seed[4:8])

    def orders(self, n: int, epochs: int) -> Iterator[Tensor]:
        """The samples 0 .. n - 1 in a new order for each epoch; its minibatches are taken from the front."""
        for _ in range(epochs if n else 0):
            yield torch.randperm(n, generator=self._order)

    def keep(self, samples: int, p: float, shape: tuple[int, ...]) -> Tensor:
        """Which activations a dropout of probability p keeps, 0 or 1, [samples, *shape]."""
        return torch.rand(samples, *shape, generator=self._keep).ge_(p)


def _generator(raw: bytes) -> torch.Generator:
    return torch.Generator().manual_seed(int.from_bytes(raw, "big"))
