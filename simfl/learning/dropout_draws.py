"""The draws of dropout, made where training runs: nothing of them crosses the bus to a GPU.

Invariant: a draw depends on its client's seed and its place alone, by integers of 32 bits, so every device
and every way of training draws the same. The function is Philox4x32-10 (Salmon et al. 2011, "Parallel random
numbers: as easy as 1, 2, 3"), whose authors publish what it gives (Random123, kat_vectors).
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
_WEYL = np.array([0x9E3779B9, 0xBB67AE85])  # what the key grows by from round to round
_ROUNDS, _WORD = 10, 2**32 - 1


def round_keys(seeds: Sequence[bytes]) -> I64:
    """Return the key of every round, two words, for the seeds of K clients, [10, 2, K]: from the second half
    of a seed, as the first is for the order of samples."""
    words = np.array([np.frombuffer(seed, ">u4")[4:6] for seed in seeds], np.int64)
    found: I64 = (words.T + np.arange(_ROUNDS)[:, None, None] * _WEYL[:, None]) & _WORD
    return found


def philox(counter: Iterable[Tensor], keys: Tensor) -> tuple[Tensor, ...]:
    """Return the four words of each counter of four words under the `round_keys` [10, 2, ...].

    Counters are int64 tensors of words of 32 bits. They and the keys are broadcast, and what only some of
    them tell apart is computed for those alone.
    """
    a, b, c, d = counter
    for first, second in keys:
        # A product of two words fills int64 with its sign bit, and wraps around to the right 64 bits. The
        # shift repeats the sign, which the mask takes away; until then b and d are more than their words.
        low, high = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, c = (high >> 32 ^ b ^ first) & _WORD, (low >> 32 ^ d ^ second) & _WORD
        b, d = high, low
    return a, b & _WORD, c, d & _WORD


class DropoutDraws:
    """The draws of a module's dropouts, given with the shapes of their inputs for one sample.

    The numbers of a sample lie one layer after the other, in quarters of as many blocks: that of block b in
    quarter w is word w of counter (row of the minibatch, b, step, 0). It is dropped if its word is below
    p 2^32, which is exact for p = 1/2 and 1/4, and else at most 2^-32 away from p.
    """

    def __init__(self, dropouts: Sequence[tuple[Dropout, Shape]], device: str, dtype: torch.dtype) -> None:
        self._shapes, self._dtype = [shape for _, shape in dropouts], dtype
        sizes = [prod(shape) for shape in self._shapes]
        self.numbers = sum(sizes)
        """Numbers of a sample that are drawn for."""
        blocks = -(-self.numbers // 4)
        limits = np.zeros(4 * blocks, np.int64)
        limits[: self.numbers] = np.repeat([round(layer.p * 2**32) for layer, _ in dropouts], sizes)
        self._limits = torch.as_tensor(limits.reshape(4, blocks), device=device)
        self._blocks = torch.arange(blocks, device=device)
        self._ends = np.cumsum(sizes).tolist()

    def kept(self, keys: Tensor, step: int | Tensor, rows: int) -> list[Tensor]:
        """Return what each dropout keeps of a minibatch, 0 or 1, [..., rows, *shape] for keys [10, 2, ...].

        step: its number, from 0. Rows beyond a client's samples may be drawn: they are filling.
        """
        if not self._shapes:
            return []
        device = self._blocks.device
        row = torch.arange(rows, device=device)[:, None]
        if isinstance(step, int):  # filled in on the device: sending it would make the host wait
            step = torch.full((), step, device=device)
        words = philox((row, self._blocks, step, torch.zeros_like(step)), keys[..., None, None])
        kept = torch.stack([word >= limit for word, limit in zip(words, self._limits, strict=True)], dim=-2)
        parts = kept.flatten(-2)[..., : self.numbers].to(self._dtype).tensor_split(self._ends[:-1], dim=-1)
        return [
            part.reshape(*part.shape[:-1], *shape) for part, shape in zip(parts, self._shapes, strict=True)
        ]
