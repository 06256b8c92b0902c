"""The draws of dropout, computed on the device that trains, so that none is sent to a GPU.

Invariant: a draw depends on its client's seed and its position only, by integers of 32 bits. So every device
and every training method has the same draws (`tests/learning/test_dropout_draws.py`). The function is
Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"); the tests compare it with
its authors' published values (Random123, kat_vectors).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor

from simfl.learning.data.dataset import I64
from simfl.learning.models.model import Shape
from simfl.learning.models.rules import Dropout

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = np.array([0x9E3779B9, 0xBB67AE85])
"""Increment of the key from round to round."""
_ROUNDS, _WORD = 10, 2**32 - 1


def round_keys(seeds: Sequence[bytes]) -> I64:
    """Return the key of every round, two words, for the seeds of K clients, int64 [10, 2, K].

    It is from the second half of a seed, as the first half is for the order of samples
    (`minibatches.orders`).
    """
    # Big-endian on every machine. int64 holds words of 32 bits without a sign.
    words = np.array([np.frombuffer(seed, ">u4")[4:6] for seed in seeds], np.int64)
    keys: I64 = (words.T + np.arange(_ROUNDS)[:, None, None] * _WEYL[:, None]) & _WORD
    return keys


def philox(counter: Iterable[Tensor], keys: Tensor) -> tuple[Tensor, ...]:
    """Return the four words of each counter under round keys.

    Arguments are broadcast against each other as late as possible, so that a round's product of few counters
    is computed for these only.

    Args:
        counter: Four words of 32 bits, int64 tensors of shapes that can be broadcast.
        keys: `round_keys` [10, 2, ...].
    """
    a, b, c, d = counter
    for first, second in keys:
        # A product of two words wraps around in int64, with the right 64 bits. The shift to the right repeats
        # the sign bit, which the mask removes. b and d keep their upper bits until then.
        low, high = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, c = (high >> 32 ^ b ^ first) & _WORD, (low >> 32 ^ d ^ second) & _WORD
        b, d = high, low
    return a, b & _WORD, c, d & _WORD


class DropoutDraws:
    """The draws of a module's dropouts.

    The numbers of a sample are in the order of the layers, divided into four quarters of equally many blocks.
    The number of block b in quarter w has word w of counter (row of the minibatch, b, step, 0). It is dropped
    if its word is below p 2^32. That probability is exact for p = 1/2 and 1/4, and otherwise at most 2^-32
    away from p.

    Args:
        dropouts: `Dropout` layers, each with the shape of its input for one sample.
        device: Device of the draws.
        dtype: Type of the masks.
    """

    def __init__(self, dropouts: Sequence[tuple[Dropout, Shape]], device: str, dtype: torch.dtype) -> None:
        self._shapes, self._dtype = [shape for _, shape in dropouts], dtype
        sizes = [prod(shape) for shape in self._shapes]
        self.numbers = sum(sizes)
        """Numbers of a sample that are drawn for."""
        # Philox gives four words for a counter, and each is used.
        blocks = -(-self.numbers // 4)
        # Up to three words are beyond the last number. Their limit of 0 drops nothing, and `kept` cuts them
        # off.
        limits = np.zeros(4 * blocks, np.int64)
        limits[: self.numbers] = np.repeat([round(layer.p * 2**32) for layer, _ in dropouts], sizes)
        self._limits = torch.as_tensor(limits.reshape(4, blocks), device=device)
        self._blocks = torch.arange(blocks, device=device)
        self._ends = np.cumsum(sizes).tolist()

    def kept(self, keys: Tensor, step: int | Tensor, rows: int) -> list[Tensor]:
        """Return the mask of each dropout for a minibatch, 0 or 1, [..., rows, *shape].

        Args:
            keys: `round_keys` [10, 2, ...].
            step: Number of the minibatch, from 0.
            rows: Its samples; rows beyond a client's samples are filling.
        """
        if not self._shapes:
            return []
        device = self._blocks.device
        row = torch.arange(rows, device=device)[:, None]
        # Filled in on the device: to send it would make the host wait.
        if isinstance(step, int):
            step = torch.full((), step, device=device)
        words = philox((row, self._blocks, step, torch.zeros_like(step)), keys[..., None, None])
        kept = torch.stack([word >= limit for word, limit in zip(words, self._limits, strict=True)], dim=-2)
        parts = kept.flatten(-2)[..., : self.numbers].to(self._dtype).tensor_split(self._ends[:-1], dim=-1)
        return [
            part.reshape(*part.shape[:-1], *shape) for part, shape in zip(parts, self._shapes, strict=True)
        ]
