"""Rounds drawn one by one with the selection schemes that runs use, without a run around them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfl.world.participation import Participation
from simfl.world.selection import Selection


def participation(
    scheme: Selection, away: NDArray[np.float64], rounds: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return P, [rounds, N], zeros and ones, where user i is away with probability away[i] at each round; a
    skipped round is a row of zeros."""
    history = Participation(away.size)
    P = np.zeros((rounds, away.size), np.int64)
    for row, here in zip(P, rng.random(P.shape) >= away, strict=True):
        members = scheme.chosen(np.flatnonzero(here), history, rng) or ()
        history.append(members)
        row[list(members)] = 1
    return P
