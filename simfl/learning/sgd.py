"""Local SGD as users run it: its parameters, the methods that train cohorts, and its training time.

The methods give the same updates up to rounding. docs/performance.md has the fastest by model and device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

WayName = Literal["loop", "vectorised", "closed_form"]

CHUNK = {"cpu": 64, "cuda": 2048}
"""Clients that are trained side by side at most. On a CPU, what more of them gain is little, what they take
is memory; on a GPU `Trainer.chunk` takes fewer where the memory is predicted to be too small."""


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
        return self.lr * self.decay ** sum(at <= index for at in self.decay_at)

    @property
    def plain(self) -> bool:
        return not (self.momentum or self.weight_decay or self.mu)


@dataclass(frozen=True, slots=True)
class TrainingMethod:
    """A way to train a cohort."""

    name: WayName
    chunk: int
    """Clients trained side by side at most."""

    def __str__(self) -> str:
        together = f"{self.name.replace('_', ' ')}, up to {self.chunk} clients at a time"
        return "one client after the other" if self.name == "loop" else together


def choose_method(
    asked: WayName | Literal["auto"], softmax: bool, device: str, recurrent: bool = False
) -> TrainingMethod:
    """Return the method asked for, or the fastest for a model (softmax regression or not) on a device.

    On a CPU several networks side by side are slower than one after the other: grouped convolutions have no
    fast kernel there. On a GPU small networks leave most of it idle, so they are trained side by side, but
    recurrent ones, whose kernels are of one network.
    """
    if asked == "auto":
        together = device == "cuda" and not recurrent
        asked = "closed_form" if softmax else "vectorised" if together else "loop"
    return TrainingMethod(asked, 1 if asked == "loop" else CHUNK[device])


SIZES = (0.2, 1, 1.2, 2, 4.2, 5, 9.2, 10)
"""Samples of the calibrated clients, in minibatches: as many minibatches once whole and once with a small
last one, so that what a minibatch takes stands apart from what its samples take."""


@dataclass(frozen=True, slots=True)
class TrainingTime:
    """Training-time model: a client trained alone takes T = start + step S + sample E n seconds.

    The three factors are of a model, batch size and device.

    S minibatches, the last of an epoch as small as it may be, pass over E n samples.
    """

    start: float
    """Seconds of a training, however short."""
    sample: float
    """Seconds of a sample that is passed over."""
    step: float = 0.0
    """Seconds of a minibatch, besides those of its samples."""


def fit(points: Sequence[tuple[int, int, float]]) -> TrainingTime:
    """Return the training time with the least squared relative errors and no negative part.

    Args:
        points: Of each client, S, E n and its seconds.

    >>> law = fit([(1, 2, 0.9), (1, 10, 1.7), (2, 12, 2.1), (4, 40, 5.3)])
    >>> round(law.start, 9), round(law.step, 9), round(law.sample, 9)
    (0.5, 0.2, 0.1)
    """
    from scipy.optimize import nnls  # a fifth of a second, which a run does not need

    steps, passes, seconds = np.array(points, np.float64).reshape(-1, 3).T
    if len(set(passes)) < 2 or not (seconds > 0).all():
        raise ValueError("a law needs the positive times of at least two sizes")
    terms = np.stack([np.ones(len(seconds)), steps, passes], axis=1) / seconds[:, None]
    (start, step, sample), _ = nnls(terms, np.ones(len(seconds)))
    return TrainingTime(float(start), float(sample), float(step))
