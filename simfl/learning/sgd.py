"""Local SGD as a user runs it: its parameters."""

from __future__ import annotations

from dataclasses import dataclass


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
