"""The minibatches of a cohort: the samples that each client takes at each step, drawn from its own seed.

Invariant: the draws depend on the client's seed and its number of samples only, under each training method
(`tests/learning/test_minibatches.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from simfl.learning.data.dataset import F32, I64, Floats
from simfl.learning.sgd import LocalSgd


def generator(key: bytes) -> np.random.Generator:
    """Return Philox4x64 (Salmon et al. 2011) under a key of 16 bytes, which must be uniform."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big")))


def kaiming(draws: np.random.Generator, shape: tuple[int, ...]) -> F32:
    """Return starting weights [out, ...], uniform on +-1 / sqrt(fan-in): torch's default, a = sqrt 5."""
    fan_in = prod(shape[1:])
    return (2 * draws.random(shape, np.float32) - 1) * np.float32(fan_in**-0.5)


DRAWN = 2**20
"""Sample numbers that are drawn at a time, but at least an epoch or a step: 8 MB, and as much for weights. So
the memory of training does not grow with the number of epochs."""


def orders(seed: bytes, n: int, epochs: int, drawn: int = DRAWN) -> Iterator[I64]:
    """Return the samples 0 .. n - 1 in a new order for each epoch, in blocks [epochs of the block, n].

    The orders use the first half of a client's seed and dropout the second, so that neither shifts the
    other's draws.

    Args:
        seed: 32 bytes.
        n: Number of samples; without samples there are no epochs.
        epochs: Number of epochs.
        drawn: Numbers of a block, about.

    Raises:
        ValueError: The seed has another length.
    """
    if len(seed) != 32:
        raise ValueError(f"a seed has {len(seed)} bytes, it must have 32")
    # `permuted` draws row by row, so the size of a block changes no order (test_minibatches.py:
    # test_orders_do_not_depend_on_numbers_drawn_at_once).
    draws, at_once = generator(seed[:16]), max(1, drawn // max(1, n))
    blocks = (min(at_once, epochs - first) for first in range(0, epochs if n else 0, at_once))
    return (draws.permuted(np.tile(np.arange(n), (block, 1)), axis=1) for block in blocks)


class Cutoff:
    """The end of a training by time: the first minibatch boundary after a limit.

    Attributes:
        limit_ns: Time after which it ends.
        steps: Minibatches done.
        spent_ns: Returns the time that the training took so far.
    """

    def __init__(self, limit_ns: float) -> None:
        self.limit_ns, self.steps = limit_ns, 0
        self.spent_ns: Callable[[], int] = lambda: 0

    def reached(self, steps: int) -> bool:
        """Return True if the training ends after this number of minibatches."""
        # Recorded for the last time when the training ends: the number of minibatches done.
        self.steps = steps
        return self.spent_ns() > self.limit_ns


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """K clients that are trained together, by falling number of steps."""

    starts: Floats
    """Models x^(t) that they start from, [K, d]."""
    parts: Sequence[I64]
    """Numbers of each client's samples."""
    seeds: Sequence[bytes]
    """Seed of each client's draws, 32 bytes."""
    sgd: LocalSgd
    """Parameters of local training."""
    lrs: Sequence[float]
    """Step size of each client."""
    steps: Sequence[int]
    """Minibatches of each client."""
    cutoff: Cutoff | None = None
    """Ends the training of a single client by its time; otherwise None."""

    def part(self, first: int, end: int) -> Cohort:
        """Return its clients first .. end - 1."""
        clients = slice(first, end)
        fields = self.starts[clients], self.parts[clients], self.seeds[clients], self.sgd, self.lrs[clients]
        return Cohort(*fields, self.steps[clients], self.cutoff)

    def over(self, steps: int) -> bool:
        """Return True if training ends after this number of steps."""
        return self.cutoff is not None and self.cutoff.reached(steps)


class Schedule:
    """The minibatches of K clients in S successive steps.

    Clients with a minibatch at step s are a prefix of the cohort, so no client is padded to the longest.
    Within a step shorter minibatches are filled up with samples of weight zero.

    Attributes:
        first: The number of its first step.
        rows: Sample numbers of the data set, [S, K, B].
        weights: 1 / (size of the minibatch) for its samples and 0 for filling, [S, K, B].
        sizes: Samples of each minibatch, [S, K].
        active: The number of clients that have a step, [S].
    """

    def __init__(self, first: int, rows: I64, sizes: I64, active: list[int]) -> None:
        # At least 1 in the divisor: clients without a step here have size 0, and weights 0.
        weights = (np.arange(rows.shape[2]) < sizes[..., None]) / np.maximum(sizes, 1)[..., None]
        self.first, self.active = first, active
        # Steps first, as training goes step by step.
        self.rows, self.weights, self.sizes = rows.swapaxes(0, 1), weights.swapaxes(0, 1), sizes.T

    def blocks(self, mixed: bool) -> Iterator[list[tuple[slice | I64, int]]]:
        """Yield for each step the clients that are computed together, and the width of their minibatches.

        Args:
            mixed: Minibatches of different sizes may be computed together: then all active clients are. False
                if batch statistics would include the filling: then clients with minibatches of one size are.
        """
        for active, sizes in zip(self.active, self.sizes, strict=True):
            if mixed:
                yield [(slice(0, active), self.rows.shape[2])]
            else:
                # By size, as a batch norm would take filling for samples (test_ways.py:
                # test_batch_statistics_never_see_filling).
                present = sizes[:active]
                yield [(np.flatnonzero(present == size), int(size)) for size in np.unique(present)]


def schedules(cohort: Cohort, drawn: int = DRAWN) -> Iterator[Schedule]:
    """Yield the minibatches of a cohort at all of its steps, about `drawn` sample numbers at a time."""
    counts, steps = np.array([len(part) for part in cohort.parts]), np.array(cohort.steps)
    # The cohort is ordered by falling steps, so the first client has the most.
    batch, K, total_steps = cohort.sgd.batch_size, len(counts), int(steps[0])
    # At least one step an epoch, so that a user without samples divides by no zero.
    width, per_epoch = min(batch, int(counts.max())), np.maximum(-(-counts // batch), 1)[:, None]
    last_size = counts[:, None] - (per_epoch - 1) * width
    clients = zip(cohort.seeds, cohort.parts, strict=True)
    queues = [_Minibatches(seed, part, cohort.sgd.epochs, width, drawn // K) for seed, part in clients]
    at_once = max(1, drawn // (K * max(1, width)))
    for first in range(0, total_steps, at_once):
        numbers = np.arange(first, min(first + at_once, total_steps))
        rows = np.zeros((K, len(numbers), width), np.int64)
        for k in range(K):
            count = min(len(numbers), int(steps[k]) - first)
            if count > 0:
                rows[k, :count] = queues[k].take(count)
        sizes = np.where(numbers % per_epoch == per_epoch - 1, last_size, width)
        # Beyond a client's last step: the formula above goes on for ever.
        sizes[numbers >= steps[:, None]] = 0
        # Steps fall along the cohort: the clients with more than s steps are a prefix, whose length this
        # finds.
        active = np.searchsorted(-steps, -numbers, side="left")
        yield Schedule(first, rows, sizes, active.tolist())


class _Minibatches:
    """The minibatches of a client, [width] sample numbers each; the last of an epoch is filled up with 0."""

    def __init__(self, seed: bytes, part: I64, epochs: int, width: int, drawn: int) -> None:
        self.part, self.width = part, width
        self.orders = orders(seed, len(part), epochs, drawn)
        self.next = np.zeros((0, width), np.int64)

    def take(self, count: int) -> I64:
        """Return the next minibatches [count, width]."""
        # An epoch may give more minibatches than are needed now; the others are the next ones.
        blocks, drawn = [self.next], len(self.next)
        while drawn < count:
            order = next(self.orders)
            # Rounded up: the last minibatch of an epoch may be short.
            batches = -(-len(self.part) // self.width)
            # Sample 0 fills up the last minibatch; the schedule gives it weight 0.
            filled = np.zeros((len(order), batches * self.width), np.int64)
            filled[:, : len(self.part)] = self.part[order]
            blocks.append(filled.reshape(-1, self.width))
            drawn += len(blocks[-1])
        rows = np.concatenate(blocks)
        self.next = rows[count:]
        return rows[:count]
