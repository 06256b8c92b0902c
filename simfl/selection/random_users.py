"""k of the available users, uniformly without replacement (FedAvg, McMahan 2017, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.selection.history import Participation


def random_users(
    available: Sequence[int] | NDArray[np.int64],
    history: Participation,
    k: int | None,
    rng: np.random.Generator,
) -> list[int] | None:
    """k distinct users of `available`, ascending; None if there are fewer. ValueError if k is None.

    The order of `available` does not matter.
    """
    if k is None:
        raise ValueError("random selection needs k, the number of users in a round")
    if len(available) < k:
        return None
    return sorted(rng.choice(np.sort(available), size=k, replace=False).tolist())
