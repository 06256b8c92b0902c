"""Every user's training samples, resident on the device once: minibatches are gathered from there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simfl.learning.data import Split, as_float


class Samples:
    """Training samples by user. Pixels stay bytes until they are in a minibatch; images that a data set
    reads lazily stay on disk."""

    def __init__(
        self, split: Split, parts: Sequence[NDArray[np.int64]], device: str, dtype: torch.dtype
    ) -> None:
        self.parts = parts
        self.device, self.dtype = device, dtype
        self._x = (
            split.x_train if not isinstance(split.x_train, np.ndarray) else to_tensor(split.x_train, device)
        )
        self._y = torch.as_tensor(split.y_train, device=device)

    def count(self, user: int) -> int:
        """The user's samples."""
        return len(self.parts[user])

    def gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Samples by their number in the data set, `rows` of any shape: x [*rows, *shape], y [*rows]."""
        rows = rows.to(self.device)
        return self.pixels(rows), self._y[rows]

    def pixels(self, rows: Tensor) -> Tensor:
        """x [*rows, *shape] of `gather`."""
        if isinstance(self._x, Tensor):
            return floats(self._x[rows], self.dtype)
        flat = self._x[rows.reshape(-1).cpu().numpy()]
        x = torch.as_tensor(as_float(flat), device=self.device, dtype=self.dtype)
        return x.view(*rows.shape, *x.shape[1:])


def to_tensor(x: NDArray[np.float32] | NDArray[np.uint8], device: str) -> Tensor:
    """On the device, through pinned memory where that is a GPU."""
    tensor = torch.from_numpy(np.require(x, requirements=("C", "W")))
    return tensor if device == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def floats(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Pixels as numbers: bytes 0 .. 255 become 0 .. 1."""
    return x.to(dtype).div_(255) if x.dtype == torch.uint8 else x.to(dtype)
