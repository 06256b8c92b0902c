"""What a user draws in one local training, decided by its own stream."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

Seed = bytes
"""32 bytes: all that a user draws in one local training comes from them."""


class Draws:
    """A user's own draws: the order of its minibatches, and what dropout keeps."""

    def __init__(self, seed: Seed) -> None:
        if len(seed) != 32:
            raise ValueError(f"a seed has {len(seed)} bytes, it must have 32")
        # On the CPU also for a GPU, so that both draw the same. The Mersenne Twister takes 32 bits of seed
        # and would ignore more; the order and the dropout have one each, so neither shifts the other.
        self._order = _generator(seed[:4])
        self._keep = _generator(seed[4:8])

    def orders(self, n: int, epochs: int) -> Iterator[Tensor]:
        """The samples 0 .. n - 1 in a new order for each epoch; its minibatches are taken from the front."""
        for _ in range(epochs if n else 0):
            yield torch.randperm(n, generator=self._order)

    def keep(self, samples: int, p: float, shape: tuple[int, ...]) -> Tensor:
        """Which activations a dropout of probability p keeps, 0 or 1, [samples, *shape]."""
        return torch.rand(samples, *shape, generator=self._keep).ge_(p)


def _generator(raw: bytes) -> torch.Generator:
    return torch.Generator().manual_seed(int.from_bytes(raw, "big"))
