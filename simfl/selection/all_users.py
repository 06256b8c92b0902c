"""Everyone who is available takes part."""

from collections.abc import Sequence

import numpy as np


def all_users(
    available: Sequence[int], history: Sequence[frozenset[int]], k: int | None, rng: np.random.Generator
) -> list[int] | None:
    """All of `available`, ascending; None if there are fewer than k, or nobody where k is None."""
    return sorted(available) if len(available) >= (1 if k is None else k) else None
