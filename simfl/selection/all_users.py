"""Everyone who is available takes part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.selection.history import Participation


def all_users(
    available: Sequence[int] | NDArray[np.int64],
    history: Participation,
    k: int | None,
    rng: np.random.Generator,
) -> list[int] | None:
    """All of `available`, ascending; None if there are fewer than k, or nobody where k is None."""
    if len(available) < (1 if k is None else k):
        return None
    return [int(user) for user in sorted(available)]
