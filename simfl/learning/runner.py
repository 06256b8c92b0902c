"""Training and evaluation themselves, on a device: the part of a `Trainer` that needs torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from simfl.learning import closed_form, loop, vectorised
from simfl.learning.data import Split
from simfl.learning.draws import Draws
from simfl.learning.flat import Workspace, images, initial
from simfl.learning.models import Model
from simfl.learning.samples import Samples, floats, to_tensor
from simfl.learning.sgd import LocalSgd
from simfl.learning.ways import F32, Name, Seed, Way, way_of

_EVALUATED = 512
"""Test samples in one pass; batch statistics, where a model has them, are those of so many."""


def pick_device(requested: str | None) -> str:
    """ "cpu" or "cuda". None and "auto" take a GPU if there is one.

    ValueError if "cuda" is requested where torch sees none, or for another name.
    """
    if requested in (None, "auto"):
        return "cuda" if torch.cuda.is_available() else "cpu"
    if requested not in ("cpu", "cuda"):
        raise ValueError(f"device={requested!r} must be 'auto', 'cpu' or 'cuda'")
    if requested == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' was requested, but torch sees no CUDA GPU: use 'auto' or 'cpu'")
    return requested


class Runner:
    """Trains users; safe to call from several threads at once. Arguments as of `Trainer`."""

    def __init__(
        self,
        split: Split,
        parts: Sequence[NDArray[np.int64]],
        model: Model,
        sgd: LocalSgd,
        device: str | None,
        way: Name | None,
        dtype: torch.dtype | None,
    ) -> None:
        self.device, self.dtype = pick_device(device), dtype or torch.float32
        self.split, self.model, self.sgd = split, model, sgd
        if self.device == "cuda":  # its 10-bit products are not float32's
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        self._work = Workspace(model, split.shape, split.classes, self.device, self.dtype)
        self.way: Way = way_of(way, closed_form.fits(self._work.module), self.device)
        self.d: int = self._work.flat.numel()
        self._samples = Samples(split, parts, self.device, self.dtype)

    def initial(self, seed: Seed) -> F32:
        """x^(0) [1, d] (see `flat.initial`). seed: 32 bytes, also as uint8 [1, 32]."""
        generator = torch.Generator().manual_seed(int.from_bytes(_raw(seed)[:4], "big"))
        flat: F32 = initial(self._work.module, generator).numpy().reshape(1, -1)
        return flat

    def train(
        self, weights: Sequence[F32], users: Sequence[int], seeds: Sequence[Seed], rounds: Sequence[int]
    ) -> F32:
        """See `Trainer.train`."""
        lrs = [self.sgd.lr_at(index) for index in rounds]
        return self._train(self.way.name, weights, users, seeds, lrs, self._samples, self.sgd)

    def _train(
        self,
        way: str,
        weights: Sequence[F32],
        users: Sequence[int],
        seeds: Sequence[Seed],
        lrs: Sequence[float],
        samples: Samples,
        sgd: LocalSgd,
    ) -> F32:
        work, draws = self._work, [Draws(_raw(seed)) for seed in seeds]
        starts = [self._start(row) for row in weights]
        if way == "loop":
            rows = [
                start - loop.train(work, start, samples, user, own, sgd, lr)
                for start, user, own, lr in zip(starts, users, draws, lrs, strict=True)
            ]
            return _numpy(torch.stack(rows))
        stacked = torch.stack(starts)
        if way == "closed_form":
            classes = self.split.classes
            return _numpy(stacked - closed_form.train(stacked, samples, users, draws, sgd, lrs, classes))
        return _numpy(stacked - vectorised.train(work, stacked, samples, users, draws, sgd, lrs))

    def _start(self, weights: F32) -> torch.Tensor:
        if weights.shape != (1, self.d) or weights.dtype != np.float32:
            raise ValueError(f"weights are {weights.dtype} {weights.shape}, not float32 (1, {self.d})")
        return to_tensor(weights[0], self.device).to(self.dtype)

    def evaluate(self, weights: F32) -> NDArray[np.float64]:
        """(accuracy, mean cross-entropy) on the test samples, [1, 2]. weights: [1, d]."""
        work, device = self._work, self.device
        work.flat.copy_(self._start(weights))
        work.keep(None)
        hits = loss = 0.0
        count = len(self.split.y_test)
        with torch.no_grad():
            for rows in torch.split(torch.arange(count), _EVALUATED):
                pixels = np.asarray(self.split.x_test[rows.numpy()])
                x = floats(to_tensor(pixels, device), self.dtype)
                y = torch.as_tensor(self.split.y_test[rows.numpy()], device=device)
                logits = work.module(images(x)).double()
                hits += (logits.argmax(dim=1) == y).sum().item()
                loss += cross_entropy(logits, y, reduction="sum").item()
        return np.array([[hits / count, loss / count]])


def _raw(seed: Seed) -> bytes:
    return seed if isinstance(seed, bytes) else seed.tobytes()


def _numpy(rows: torch.Tensor) -> F32:
    array: F32 = rows.cpu().numpy()
    return array
