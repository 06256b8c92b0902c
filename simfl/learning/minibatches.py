"""Minibatches: a user's samples in the order that it draws, alone or side by side with a cohort's.

A cohort's clients are sorted by their number of steps and never padded to the longest: at step s those that
still have a minibatch are a prefix. Within a step the shorter minibatches are filled up with samples of
weight zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simfl.learning.data.dataset import Split
from simfl.learning.sgd import LocalSgd


class Draws:
    """A user's own draws in one local training: the order of its minibatches, and what dropout keeps.

    seed: 32 bytes, from which all of them come.
    """

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise ValueError(f"a seed has {len(seed)} bytes, it must have 32")
        # On the CPU also for a GPU, so that both draw the same. The Mersenne Twister takes 32 bits of seed
        # and would ignore more; the order and the dropout have one each, so neither shifts the other.
        self._order, self._keep = generator(seed[:4]), generator(seed[4:8])

    def orders(self, n: int, epochs: int) -> Iterator[Tensor]:
        """Yield the samples 0 .. n - 1 in a new order for each epoch, to be cut into minibatches."""
        for _ in range(epochs if n else 0):
            yield torch.randperm(n, generator=self._order)

    def keep(self, samples: int, p: float, shape: tuple[int, ...]) -> Tensor:
        """Return the activations that a dropout of probability p keeps, 0 or 1, [samples, *shape]."""
        return torch.rand(samples, *shape, generator=self._keep).ge_(p)


def generator(raw: bytes) -> torch.Generator:
    """Return a generator of its own, seeded by four bytes."""
    return torch.Generator().manual_seed(int.from_bytes(raw, "big"))


class Samples:
    """Every user's training samples, resident on the device once.

    Pixels stay bytes until they are in a minibatch; images that a data set reads lazily stay on disk.
    """

    def __init__(
        self, split: Split, parts: Sequence[NDArray[np.int64]], device: str, dtype: torch.dtype
    ) -> None:
        self.parts, self.device, self.dtype = parts, device, dtype
        x = split.x_train
        self._x = to_tensor(x, device) if isinstance(x, np.ndarray) else x
        self._y = torch.as_tensor(split.y_train, device=device)

    def gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return samples by their numbers, `rows` of any shape: x [*rows, *shape] and y [*rows]."""
        rows = rows.to(self.device)
        if isinstance(self._x, Tensor):
            x = self._x[rows]
        else:
            read = to_tensor(self._x[rows.reshape(-1).cpu().numpy()], self.device)
            x = read.view(*rows.shape, *read.shape[1:])
        return floats(x, self.dtype), self._y[rows]


def to_tensor(x: NDArray[np.float32] | NDArray[np.uint8], device: str) -> Tensor:
    """Return an array on the device, through pinned memory where that is a GPU."""
    tensor = torch.from_numpy(np.require(x, requirements=("C", "W")))
    return tensor if device == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def floats(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return pixels as numbers: bytes 0 .. 255 become 0 .. 1."""
    return x.to(dtype).div_(255) if x.dtype == torch.uint8 else x.to(dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """K clients that are trained together: their models x^(t) [K, d], numbers, draws and step sizes."""

    starts: Tensor
    users: Sequence[int]
    draws: Sequence[Draws]
    sgd: LocalSgd
    lrs: Sequence[float]


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The minibatches of K clients in S steps; row k is client `order[k]`, by falling number of steps.

    place: the row of each client. rows: [S, K, B] sample numbers of the data set. weights: [S, K, B],
    1 / (size of the minibatch) for its samples and 0 for filling. sizes: [S, K]. active: the clients that
    have step s, [S].
    """

    order: list[int]
    place: list[int]
    rows: Tensor
    weights: Tensor
    sizes: NDArray[np.int64]
    active: list[int]

    def blocks(self, step: int, mixed: bool) -> Iterator[slice | list[int]]:
        """Yield the active clients of a step, in blocks of rows that can be computed together.

        mixed: minibatches may be filled up, so all go together; where batch statistics would see the filling,
        a block is of one size.
        """
        if mixed:
            yield slice(0, self.active[step])
            return
        sizes = self.sizes[step, : self.active[step]]
        for size in np.unique(sizes):
            yield np.flatnonzero(sizes == size).tolist()


def schedule(samples: Samples, cohort: Cohort) -> Schedule:
    """Return the minibatches of a cohort, each client's from its own draws."""
    sgd, parts = cohort.sgd, [samples.parts[user] for user in cohort.users]
    counts = np.array([len(part) for part in parts])
    order = np.argsort(-counts, kind="stable")
    counts, width = counts[order], min(sgd.batch_size, int(counts.max()))
    per_epoch = -(-counts // sgd.batch_size)
    most = int(sgd.epochs * per_epoch[0])
    rows = np.zeros((len(parts), most, width), np.int64)
    sizes = np.zeros((len(parts), most), np.int64)
    for k, (client, n, batches) in enumerate(zip(order, counts, per_epoch, strict=True)):
        for epoch, shuffled in enumerate(cohort.draws[client].orders(int(n), sgd.epochs)):
            steps = slice(epoch * batches, (epoch + 1) * batches)
            rows[k, steps].reshape(-1)[:n] = parts[client][shuffled.numpy()]
            sizes[k, steps] = width
            sizes[k, steps.stop - 1] = n - (batches - 1) * width
    weights = (np.arange(width) < sizes[..., None]) / np.maximum(sizes, 1)[..., None]
    active = np.searchsorted(-sgd.epochs * per_epoch, -np.arange(most), side="left")
    return Schedule(
        order.tolist(),
        np.argsort(order).tolist(),
        torch.from_numpy(rows.swapaxes(0, 1)).to(samples.device),
        torch.from_numpy(weights.swapaxes(0, 1)).to(samples.device, samples.dtype),
        sizes.T,
        active.tolist(),
    )
