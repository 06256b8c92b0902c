"""Which way of training is fastest here: decided by a short measurement, once a machine.

The ways give the same updates up to rounding. A measurement trains a few made-up clients of a few
minibatches each; its outcome is kept in the user's cache folder by model, input, batch size, device and
versions, so that the next run does not repeat it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

STEPS = 2
"""Minibatches of a made-up client."""

PATIENCE_S = 2.0
"""A way is not tried on more clients once a trial took so long."""

CHUNKS = (2, 8, 32, 128)

HOPELESS = 0.7
"""A way below so many times the loop, or one that falls off as clients are added, is tried no further."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A way of training and how many clients at a time it takes best; `speedup` is against the loop."""

    way: str
    chunk: int
    speedup: float = 1.0

    def __str__(self) -> str:
        if self.way == "loop":
            return "one client after the other"
        return f"{self.way.replace('_', ' ')}, {self.chunk} clients at a time, {self.speedup:.1f} x the loop"


def fastest(trials: Mapping[str, Callable[[int], object]]) -> Choice:
    """The fastest of the ways, each trial(clients) training that many; the first is the loop."""
    loop, *others = trials
    per_client = _seconds(trials[loop], 2) / 2
    best = Choice(loop, 1)
    for way in others:
        before = 0.0
        for chunk in CHUNKS:
            if per_client * chunk > PATIENCE_S:
                break
            try:
                taken = _seconds(trials[way], chunk)
            except (RuntimeError, MemoryError):  # out of the device's memory, or no batching rule for a layer
                break
            speedup = per_client * chunk / taken
            if speedup > 1.05 * best.speedup:
                best = Choice(way, chunk, round(speedup, 1))
            if speedup < max(HOPELESS, 0.8 * before):
                break
            before = speedup
    return best


def _seconds(trial: Callable[[int], object], clients: int) -> float:
    taken: list[float] = []
    while len(taken) < 4 and sum(taken) < PATIENCE_S:  # the first call warms up
        start = time.perf_counter()
        trial(clients)
        taken.append(time.perf_counter() - start)
    return min(taken[1:] or taken)
