"""Local SGD as users run it: its parameters, the methods that train cohorts, and its training time.

The methods give the same updates up to rounding. docs/performance.md has the fastest by model and device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

WayName = Literal["loop", "vectorised", "closed_form"]

CHUNK = {"cpu": 64, "cuda": 2048}
"""Most clients that are trained side by side. On a CPU more of them gain little and need memory. On a GPU
`Trainer.chunk` takes fewer if the memory is predicted to be too small."""


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
    """E, passes over a user's samples."""
    batch_size: int
    """Samples of a full minibatch."""
    lr: float
    """Step size of round 0."""
    momentum: float = 0.0
    """Factor on the velocity."""
    weight_decay: float = 0.0
    """Factor on the weights that is added to the gradient."""
    mu: float = 0.0
    """FedProx's mu."""
    decay: float = 1.0
    """Factor on the step size at each round of `decay_at`."""
    decay_at: tuple[int, ...] = ()
    """Rounds."""

    def lr_at(self, index: int) -> float:
        """Return the step size of a round."""
        # Computed anew for each round: the step size is a function of the round, and of no earlier one.
        return self.lr * self.decay ** sum(at <= index for at in self.decay_at)

    @property
    def plain(self) -> bool:
        """True if a step subtracts the gradient times lr and nothing else."""
        return not (self.momentum or self.weight_decay or self.mu)


@dataclass(frozen=True, slots=True)
class TrainingMethod:
    """A method to train a cohort."""

    name: WayName
    """The scenario's word for it."""
    chunk: int
    """Clients trained side by side at most."""

    def __str__(self) -> str:
        together = f"{self.name.replace('_', ' ')}, up to {self.chunk} clients at a time"
        return "one client after the other" if self.name == "loop" else together


def choose_method(
    asked: WayName | Literal["auto"], softmax: bool, device: str, recurrent: bool = False
) -> TrainingMethod:
    """Return the requested method, or the fastest one for a model on a device.

    Args:
        asked: Requested method, or `auto`.
        softmax: The model is softmax regression.
        device: "cpu" or "cuda".
        recurrent: The model has recurrent layers.
    """
    if asked == "auto":
        # On a CPU several networks side by side are slower than one after the other: grouped convolutions
        # have no fast kernel there. On a GPU a small network leaves most of it idle, so networks are trained
        # side by side; except recurrent ones, whose kernels are for one network.
        together = device == "cuda" and not recurrent
        asked = "closed_form" if softmax else "vectorised" if together else "loop"
    return TrainingMethod(asked, 1 if asked == "loop" else CHUNK[device])


SIZES = (0.2, 1, 1.2, 2, 4.2, 5, 9.2, 10)
"""Samples of the calibrated clients, in minibatches. Each number of minibatches occurs with a full and with a
small last one, so that the time of a minibatch can be separated from the time of its samples."""


@dataclass(frozen=True, slots=True)
class TrainingTime:
    """Training-time model: a client trained alone takes T = start + step S + sample E n seconds.

    S minibatches, the last of an epoch of any size, pass over E n samples. The three factors are for one
    model, batch size and device.
    """

    start: float
    """Seconds of a training, in addition to the time of its minibatches and samples."""
    sample: float
    """Seconds of a sample that is passed over."""
    step: float = 0.0
    """Seconds of a minibatch, in addition to the time of its samples."""


def fit(points: Sequence[tuple[int, int, float]]) -> TrainingTime:
    """Return the training time with least squared relative errors and no negative factor.

    Args:
        points: Per client, S, E n and its seconds.

    Raises:
        ValueError: There are fewer than two sizes, or a time is not positive.

    >>> fitted = fit([(1, 2, 0.9), (1, 10, 1.7), (2, 12, 2.1), (4, 40, 5.3)])
    >>> round(fitted.start, 9), round(fitted.step, 9), round(fitted.sample, 9)
    (0.5, 0.2, 0.1)
    """
    # Imported here, as it takes a fifth of a second, which a run does not need.
    from scipy.optimize import nnls

    steps, passes, seconds = np.array(points, np.float64).reshape(-1, 3).T
    if len(set(passes)) < 2 or not (seconds > 0).all():
        raise ValueError("a training time needs positive times of at least two numbers of samples")
    # Each equation is divided by its time, so errors are relative, and small clients count as much as large
    # ones.
    terms = np.stack([np.ones(len(seconds)), steps, passes], axis=1) / seconds[:, None]
    (start, step, sample), _ = nnls(terms, np.ones(len(seconds)))
    return TrainingTime(float(start), float(sample), float(step))
