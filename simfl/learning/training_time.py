"""How long a client trains: T = a + b E n, calibrated for a model, batch size and device.

The virtual clock does not take the wall time of a batch of clients that are trained together. A client's
time is that of one trained alone, by a law fitted to a few sizes; its unseen sizes are met within some
per cent. (Where a minibatch costs more than its samples do, as in tiny models, small clients of many epochs
take longer than this law says: count minibatches there.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

SIZES = (0.7, 1.4, 2.7, 5.3, 10.6)
"""Samples of the calibrated clients, in minibatches: not whole ones, as few clients have."""


@dataclass(frozen=True, slots=True)
class Law:
    """T = start + sample E n, in seconds (a and b)."""

    start: float
    sample: float


def fit(points: Sequence[tuple[int, float]]) -> Law:
    """Return the law with the least sum of squared relative errors and no negative part, for (E n, seconds).

    ValueError for fewer than two sizes or a time that is not positive.

    >>> law = fit([(10, 1.5), (20, 2.5)])
    >>> round(law.start, 9), round(law.sample, 9)
    (0.5, 0.1)
    """
    passes, seconds = np.array(points, np.float64).reshape(-1, 2).T
    if len(set(passes)) < 2 or not (seconds > 0).all():
        raise ValueError("a law needs the positive times of at least two sizes")
    (start, sample), _ = nnls(np.stack([1 / seconds, passes / seconds], axis=1), np.ones(len(seconds)))
    return Law(float(start), float(sample))
