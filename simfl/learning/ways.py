"""The ways in which cohorts are trained, and the one that `learning.way: auto` takes.

The ways give the same updates up to rounding. Which is fastest is known by the model and the device
(docs/performance.md), so nothing is measured in a user's run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Seed = bytes | NDArray[np.uint8]
"""32 bytes, also as an array [1, 32]."""

Name = Literal["loop", "vectorised", "closed_form"]

CHUNK = 64
"""Clients that are trained side by side: what more of them gain is little, what they take is memory."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way of training, and the clients that it takes at a time."""

    name: Name
    chunk: int

    def __str__(self) -> str:
        if self.name == "loop":
            return "one client after the other"
        return f"{self.name.replace('_', ' ')}, {self.chunk} clients at a time"


def way_of(asked: Name | None, softmax: bool, device: str) -> Way:
    """Return the way that was asked for, or the fastest for a model (softmax regression or not) on a device.

    On a CPU several networks side by side are slower than one after the other: grouped convolutions have no
    fast kernel there. On a GPU small networks leave most of it idle, so they are trained side by side.
    """
    if asked is None:
        asked = "closed_form" if softmax else "vectorised" if device == "cuda" else "loop"
    return Way(asked, 1 if asked == "loop" else CHUNK)
