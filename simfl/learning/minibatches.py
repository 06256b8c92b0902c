"""The minibatches of a cohort: the samples that each client takes at each step, drawn from its own seed.

Invariant: the draws depend on the client's seed and its number of samples only, whichever way it is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from simfl.learning.data.dataset import F32, I64, Floats
from simfl.learning.sgd import LocalSgd


def generator(key: bytes) -> np.random.Generator:
    """Return Philox4x64 (Salmon et al. 2011) under a key of 16 bytes, which are uniform already."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big")))


def kaiming(draws: np.random.Generator, shape: tuple[int, ...]) -> F32:
    """Return starting weights [out, ...], uniform on +-1 / sqrt(fan-in): torch's default, a = sqrt 5."""
    fan_in = prod(shape[1:])
    return (2 * draws.random(shape, np.float32) - 1) * np.float32(fan_in**-0.5)


def orders(seed: bytes, n: int, epochs: int) -> I64:
    """Return the samples 0 .. n - 1 in a new order for each epoch, [epochs, n]; no epoch without samples.

    They have the first half of a client's seed, and dropout has the other, so neither shifts the other.
    """
    if len(seed) != 32:
        raise ValueError(f"a seed has {len(seed)} bytes, it must have 32")
    numbers = np.tile(np.arange(n), (epochs if n else 0, 1))
    return generator(seed[:16]).permuted(numbers, axis=1)


class Cutoff:
    """The end of a training whose steps are not known before: the first minibatch boundary at which
    `spent_ns`, the time that it took so far, is above a limit. steps: minibatches done."""

    def __init__(self, limit_ns: float) -> None:
        self.limit_ns, self.steps = limit_ns, 0
        self.spent_ns: Callable[[], int] = lambda: 0

    def reached(self, steps: int) -> bool:
        self.steps = steps
        return self.spent_ns() > self.limit_ns


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """K clients that are trained together, by falling number of steps: models x^(t) [K, d], the numbers of
    their samples, seeds, step sizes and minibatches. cutoff: of one client that may end earlier."""

    starts: Floats
    parts: Sequence[I64]
    seeds: Sequence[bytes]
    sgd: LocalSgd
    lrs: Sequence[float]
    steps: Sequence[int]
    cutoff: Cutoff | None = None

    def part(self, first: int, end: int) -> Cohort:
        """Return its clients first .. end - 1."""
        some = slice(first, end)
        each = self.starts[some], self.parts[some], self.seeds[some], self.sgd, self.lrs[some]
        return Cohort(*each, self.steps[some], self.cutoff)

    def over(self, steps: int) -> bool:
        """Return True if training ends after so many steps, whatever is left."""
        return self.cutoff is not None and self.cutoff.reached(steps)


class Schedule:
    """The minibatches of K clients in S steps.

    Those with a minibatch at step s are a prefix of the cohort, so none is padded to the longest; within a
    step shorter minibatches are filled up with samples of weight zero.

    rows: [S, K, B] sample numbers of the data set. weights: [S, K, B], 1 / (size of the minibatch) for its
    samples and 0 for filling. sizes: [S, K]. active: the clients that have step s, [S].
    """

    def __init__(self, cohort: Cohort) -> None:
        sgd, counts = cohort.sgd, np.array([len(part) for part in cohort.parts])
        width, per_epoch = min(sgd.batch_size, int(counts.max())), -(-counts // sgd.batch_size)
        steps = np.array(cohort.steps)
        epochs = -(-steps // np.maximum(per_epoch, 1))  # the last of them may be cut off
        K, most, room = len(counts), int(steps[0]), int((epochs * per_epoch).max())
        rows, sizes = np.zeros((K, room, width), np.int64), np.zeros((K, room), np.int64)
        each = zip(cohort.parts, cohort.seeds, per_epoch, epochs, strict=True)
        for k, (part, seed, batches, E) in enumerate(each):
            if len(part):
                mine = rows[k, : E * batches].reshape(E, batches * width)
                mine[:, : len(part)] = part[orders(seed, len(part), sgd.epochs)[:E]]
                of_epochs = sizes[k, : E * batches].reshape(E, batches)
                of_epochs[:] = width
                of_epochs[:, -1] = len(part) - (batches - 1) * width
        rows, sizes = rows[:, :most], sizes[:, :most]
        weights = (np.arange(width) < sizes[..., None]) / np.maximum(sizes, 1)[..., None]
        active = np.searchsorted(-steps, -np.arange(most), side="left")
        self.rows, self.weights = rows.swapaxes(0, 1), weights.swapaxes(0, 1)
        self.sizes, self.active = sizes.T, active.tolist()

    def blocks(self, mixed: bool) -> Iterator[list[tuple[slice | I64, int]]]:
        """Yield, for each step, the clients and the width of what can be computed together: all that are
        active, if minibatches may be of mixed sizes; where batch statistics would see the filling, those of
        one size."""
        for active, sizes in zip(self.active, self.sizes, strict=True):
            if mixed:
                yield [(slice(0, active), self.rows.shape[2])]
            else:
                own = sizes[:active]
                yield [(np.flatnonzero(own == size), int(size)) for size in np.unique(own)]
