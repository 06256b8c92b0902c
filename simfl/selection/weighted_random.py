"""The k available users that took part least often so far, ties at random.

Source: Multi-RoundSecAgg, section 3.3, "Random Weighted Selection".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.selection.history import Participation


def weighted_random(
    available: Sequence[int] | NDArray[np.int64],
    history: Participation,
    k: int | None,
    rng: np.random.Generator,
) -> list[int] | None:
    """k distinct users of `available`, ascending; None if there are fewer. ValueError if k is None.

    Who took part less often than the k-th least is in; the rest are drawn uniformly among those who took
    part exactly as often as the k-th. The order of `available` does not matter.
    """
    if k is None:
        raise ValueError("weighted_random selection needs k, the number of users in a round")
    if len(available) < k:
        return None
    users = np.sort(np.asarray(available, np.int64))
    frequency = history.counts[users]
    bar = np.partition(frequency, k - 1)[k - 1]
    least = users[frequency < bar]
    drawn = rng.choice(users[frequency == bar], size=k - least.size, replace=False)
    return sorted([*least.tolist(), *drawn.tolist()])
