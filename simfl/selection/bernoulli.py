"""Each available user for itself: i.i.d. random selection.

Source: Multi-RoundSecAgg, appendix G.1, scheme 2, where the probability is K / (N (1 - p)).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.selection.history import Participation


def bernoulli(
    available: Sequence[int] | NDArray[np.int64],
    history: Participation,
    k: int | None,
    rng: np.random.Generator,
    *,
    probability: float,
) -> list[int] | None:
    """Each of `available` with `probability`, ascending; None if nobody was drawn. k plays no part.

    With N users of whom each is away with p, probability = K / (N (1 - p)) gives K of them on average.
    ValueError unless 0 < probability <= 1. The order of `available` does not matter.
    """
    if not 0 < probability <= 1:
        raise ValueError(f"bernoulli selection: probability={probability} must be above 0 and at most 1")
    users = np.sort(np.asarray(available, np.int64))
    chosen: list[int] = users[rng.random(users.size) < probability].tolist()
    return chosen or None
