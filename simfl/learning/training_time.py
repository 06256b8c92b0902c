"""How long a client trains: T = a + b E n, calibrated for a model, batch size and device.

The virtual clock does not take the wall time of a batch of clients that are trained together. A client's
time is that of one trained alone, by a law fitted to a few sizes; its unseen sizes are met within some
per cent. (Where a minibatch costs more than its samples do, as in tiny models, small clients of many epochs
take longer than this law says: count minibatches there.)
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from simfl.learning.data.split import Split
from simfl.learning.models.model import Model
from simfl.learning.sgd import LocalSgd
from simfl.learning.trainer import Trainer, pick_device

SIZES = (0.7, 1.4, 2.7, 5.3, 10.6)
"""Samples of the calibrated clients, in minibatches: not whole ones, as few clients have."""

REPEATS = 5


@dataclass(frozen=True, slots=True)
class Law:
    """T = start + sample E n, in seconds (a and b)."""

    start: float
    sample: float

    def seconds(self, passes: int) -> float:
        """The time of a training that passes over E n samples."""
        return self.start + self.sample * passes


def fit(points: Sequence[tuple[int, float]]) -> Law:
    """The law with the least sum of squared relative errors and no negative part, for (E n, seconds).

    ValueError for fewer than two sizes or a time that is not positive.
    """
    passes, seconds = np.array(points, np.float64).reshape(-1, 2).T
    if len(set(passes)) < 2 or not (seconds > 0).all():
        raise ValueError("a law needs the positive times of at least two sizes")
    (start, sample), _ = nnls(np.stack([1 / seconds, passes / seconds], axis=1), np.ones(len(seconds)))
    return Law(float(start), float(sample))


def calibrate(split: Split, model: Model, sgd: LocalSgd, device: str = "cpu") -> Law:
    """Measure clients of five sizes, each alone in the loop: CPU time, the least of several.

    Needs 11 minibatches of training samples in `split`, or else takes smaller clients. Hold every library to
    one thread meanwhile. On a GPU it is the wall time of the thread that waits for it.
    """
    largest = len(split.y_train)
    sizes = sorted({min(largest, math.ceil(k * sgd.batch_size)) for k in SIZES})
    parts = [np.arange(size) for size in sizes]
    trainer = Trainer(split, parts, model, sgd, device, way="loop")
    weights = trainer.initial(bytes(32))
    clock = time.thread_time if pick_device(device) == "cpu" else time.perf_counter
    points = []
    for user, size in enumerate(sizes):
        taken = []
        for _ in range(REPEATS + 1):
            start = clock()
            trainer.training(weights, user, bytes(32), 0)
            taken.append(clock() - start)
        points.append((sgd.epochs * size, min(taken[1:])))
    return fit(points)
