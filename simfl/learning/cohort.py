"""A cohort's minibatches side by side: clients sorted by their number of steps, never padded to the longest.

At step s the clients that still have a minibatch are a prefix of the cohort. Within a step the shorter
minibatches are filled up with samples of weight zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simfl.learning.draws import Draws
from simfl.learning.samples import Samples
from simfl.learning.sgd import LocalSgd


@dataclass(frozen=True, slots=True)
class Schedule:
    """What K clients do at each of S steps; row k is client `order[k]`, by falling number of steps.

    rows: [S, K, B] sample numbers of the data set. weights: [S, K, B], 1 / (size of the minibatch) for its
    samples and 0 for filling. sizes: [S, K]. active: how many clients have step s, [S].
    """

    order: list[int]
    rows: Tensor
    weights: Tensor
    sizes: NDArray[np.int64]
    active: list[int]


def schedule(samples: Samples, users: Sequence[int], draws: Sequence[Draws], sgd: LocalSgd) -> Schedule:
    """The minibatches of a cohort, each client's from its own draws."""
    counts = np.array([samples.count(user) for user in users])
    order = np.argsort(-counts, kind="stable")
    counts, width = counts[order], min(sgd.batch_size, int(counts.max()))
    per_epoch = -(-counts // sgd.batch_size)
    most = int(sgd.epochs * per_epoch[0])
    rows = np.zeros((len(users), most, width), np.int64)
    sizes = np.zeros((len(users), most), np.int64)
    for k, (client, n, batches) in enumerate(zip(order, counts, per_epoch, strict=True)):
        part = samples.parts[users[client]]
        for epoch, shuffled in enumerate(draws[client].orders(int(n), sgd.epochs)):
            mine = slice(epoch * batches, (epoch + 1) * batches)
            rows[k, mine].reshape(-1)[:n] = part[shuffled.numpy()]
            sizes[k, mine] = width
            sizes[k, mine.stop - 1] = n - (batches - 1) * width
    weights = (np.arange(width) < sizes[..., None]) / np.maximum(sizes, 1)[..., None]
    active = np.searchsorted(-sgd.epochs * per_epoch, -np.arange(most), side="left")
    device, dtype = samples.device, samples.dtype
    return Schedule(
        order.tolist(),
        torch.from_numpy(rows.swapaxes(0, 1)).to(device),
        torch.from_numpy(weights.swapaxes(0, 1)).to(device, dtype),
        sizes.T,
        active.tolist(),
    )


def blocks(plan: Schedule, step: int, mixed: bool) -> Iterator[slice | list[int]]:
    """The active clients of a step, in blocks of rows that can be computed together: all of them, unless
    minibatches must not be filled up (`mixed` is false: batch statistics would see it); then by size."""
    active = plan.active[step]
    if mixed:
        yield slice(0, active)
        return
    sizes = plan.sizes[step, :active]
    for size in np.unique(sizes):
        yield np.flatnonzero(sizes == size).tolist()
