"""One whole group of K users a round.

Source: Multi-RoundSecAgg, section 3.3, "User Partitioning (Grouping)".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.selection.history import Participation
from simfl.selection.multi_round import multi_round


def partition(
    available: Sequence[int] | NDArray[np.int64],
    history: Participation,
    k: int | None,
    rng: np.random.Generator,
) -> list[int] | None:
    """One of the G = N / k groups of consecutive users of whom nobody is away; None if there is none.

    Of several, one that holds a user of least frequency among them, ties at random: `multi_round` with T = K,
    fair. ValueError if k is None or does not divide N.
    """
    if k is None:
        raise ValueError("partition selection needs k, the number of users in a round")
    return multi_round(available, history, k, rng, T=k, fair=True)
