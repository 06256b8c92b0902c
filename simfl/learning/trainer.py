"""Local training and evaluation: real SGD on users' samples, as a pure function of numpy arrays.

An update is a function of (weights, user, seed, round). In the loop it is so bit for bit, whatever
is trained before or beside it (on a GPU as far as its kernels are deterministic); the cohort's ways differ
from it by rounding only. Torch is imported with the first training: d, samples and work are known without.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from simfl.errors import Diverged
from simfl.learning.data.dataset import EVALUATED, F32, I64, U8, Split
from simfl.learning.models.facts import facts
from simfl.learning.models.model import Model
from simfl.learning.sgd import LocalSgd, Way, WayName, way_of

if TYPE_CHECKING:
    import torch

    from simfl.learning.workspace import Workspace

Seed = bytes | U8
"""32 bytes, also as an array [1, 32]."""

_PASSES = 3  # the forward product, and backward one for the input's gradient and one for the weights'


def pick_device(requested: str) -> str:
    """Return the device for "cpu", "cuda" or "auto", a GPU if there is one. ValueError if "cuda" is none."""
    import torch

    if requested == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' was requested, but torch sees no CUDA GPU: use 'auto' or 'cpu'")
    return "cuda" if requested != "cpu" and torch.cuda.is_available() else "cpu"


@contextmanager
def one_thread(training: bool = True) -> Iterator[None]:
    """Hold every library to one thread: two pools on the same cores, or tiny batches, are slower with more.

    training: torch is going to be used; it is imported first, as limits reach only what is there.
    """
    if training:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        if training:
            torch.set_num_threads(threads)


class Trainer:
    """Trains users, of whose training samples `parts` are the numbers; safe for several threads at once.

    device: as for `pick_device`. dtype: what is computed in, None for float32. by_law: work is counted for a
    `Law` of the model, not in multiply-adds. ValueError where the model cannot be built or trained so.
    """

    def __init__(
        self,
        split: Split,
        parts: Sequence[I64],
        model: Model,
        sgd: LocalSgd,
        device: str = "auto",
        way: WayName | Literal["auto"] = "auto",
        dtype: torch.dtype | None = None,
        by_law: bool = False,
    ) -> None:
        self.split, self.model, self.sgd, self.parts = split, model, sgd, list(parts)
        self._facts = facts(model, split.shape, split.classes)
        self.d = self._facts.d
        if way == "closed_form" and not self._facts.softmax:
            raise ValueError(f"closed_form is for softmax regression, not for model {model.name}")
        self._device, self._way, self._dtype, self._by_law = device, way, dtype, by_law
        self._made: Workspace | None = None
        self._lock = threading.Lock()
        self.training = Training(self)

    def samples(self, user: int) -> int:
        return len(self.parts[user])

    def work(self, user: int) -> dict[str, int]:
        """Return the work of one local training: its start and E n samples by a law of the model, or
        multiply-adds, forward and backward, and minibatches. ValueError if those are not known."""
        n, epochs = self.samples(user), self.sgd.epochs
        if self._by_law:
            return {"train_start": 1, "train_sample": epochs * n}
        if self._facts.macs is None:
            raise ValueError(self._facts.why)
        macs = self._facts.macs * epochs * n * _PASSES
        return {"train_mac": macs, "train_step": epochs * -(-n // self.sgd.batch_size)}

    @cached_property
    def way(self) -> Way:
        """The way in which cohorts are trained here."""
        return way_of(self._way, self._facts.softmax, pick_device(self._device))

    def _ready(self) -> Workspace:
        with self._lock:
            if self._made is None:
                import torch

                from simfl.learning.workspace import Samples, Workspace

                device, dtype = pick_device(self._device), self._dtype or torch.float32
                if device == "cuda":  # its 10-bit products are not float32's
                    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
                samples = Samples(self.split, device, dtype)
                self._made = Workspace(self.model, self.split.classes, samples)
            return self._made

    def initial(self, seed: Seed) -> F32:
        """Return x^(0) [1, d] (see `Workspace.initial`)."""
        flat: F32 = self._ready().initial(bytes(seed)).numpy()
        return flat.reshape(1, -1)

    def train(
        self, weights: Sequence[F32], users: Sequence[int], seeds: Sequence[Seed], rounds: Sequence[int]
    ) -> F32:
        """Return Delta_i = x^(t_i) - x_i^(E; t_i) of K clients, [K, d]: downloaded minus updated (LightSecAgg
        eqs. 24-25); zero for a user without samples.

        weights: x^(t_i) [1, d] a client. seeds: all that a client draws comes from its own. rounds: whose
        step sizes they take. ValueError for weights or a seed of another shape.
        """
        import torch

        from simfl.learning import ways

        work = self._ready()
        order = sorted(range(len(users)), key=lambda k: -self.samples(users[k]))
        starts = torch.stack([work.start(weights[k]) for k in order])
        parts, draws = [self.parts[users[k]] for k in order], [ways.Draws(bytes(seeds[k])) for k in order]
        cohort = ways.Cohort(starts, parts, draws, self.sgd, [self.sgd.lr_at(rounds[k]) for k in order])
        train = {"loop": ways.loop, "vectorised": ways.vectorised, "closed_form": ways.closed_form}
        update: F32 = (starts - train[self.way.name](work, cohort)).cpu().numpy()
        return update[np.argsort(order)]

    def evaluate(self, weights: F32) -> NDArray[np.float64]:
        """Return (accuracy, mean cross-entropy) on the test samples, [1, 2], for weights [1, d].

        Batch statistics, where a model has them, are those of `EVALUATED` samples.
        """
        import torch
        from torch.nn.functional import cross_entropy

        from simfl.learning.workspace import floats, images, to_tensor

        work = self._ready()
        samples = work.samples
        work.flat.copy_(work.start(weights))
        hits = loss = 0.0
        count = len(self.split.y_test)
        with torch.no_grad():
            for rows in np.split(np.arange(count), range(EVALUATED, count, EVALUATED)):
                x = floats(to_tensor(self.split.x_test[rows], samples.device), samples.dtype)
                y = torch.as_tensor(self.split.y_test[rows], device=samples.device)
                logits = work.module(images(x)).double()
                hits += (logits.argmax(dim=1) == y).sum().item()
                loss += cross_entropy(logits, y, reduction="sum").item()
        return np.array([[hits / count, loss / count]])


class Training:
    """`Trainer.train` as a kernel of one client or many, in which an update that diverged is found."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.__name__ = "train"

    @property
    def chunk(self) -> int:
        return self.trainer.way.chunk

    def __call__(self, weights: F32, user: int, seed: Seed, index: int) -> F32:
        delta = self.trainer.train([weights], [user], [seed], [index])
        if not np.isfinite(delta).all():
            raise Diverged(user, index)
        return delta

    def many(self, calls: Sequence[tuple[F32, int, Seed, int]]) -> list[F32 | Diverged]:
        """Return each call's update [1, d], or that it is not finite, which is no fault of the others."""
        weights, users, seeds, rounds = zip(*calls, strict=True)
        rows = zip(self.trainer.train(weights, users, seeds, rounds), users, rounds, strict=True)
        # Copies: what is still needed of a cohort must not keep all of it in memory.
        return [
            row[None].copy() if np.isfinite(row).all() else Diverged(user, index) for row, user, index in rows
        ]
