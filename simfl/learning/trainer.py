"""Local training and evaluation: real SGD on users' samples, as a pure function of numpy arrays.

The law: an update is a function of (weights, user, seed, round). In the loop it is so bit for bit, whatever
is trained before or beside it (on a GPU as far as its kernels are deterministic); the cohort's ways differ
from it by rounding only. Callers hold every library to one thread: with tiny batches more are slower.

What is known without training (d, samples, work) needs no torch: it is imported with the first training.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simfl.errors import Diverged
from simfl.learning.data import Split
from simfl.learning.models import Model
from simfl.learning.models.facts import facts
from simfl.learning.sgd import LocalSgd
from simfl.learning.ways import F32, Name, Seed, Way

if TYPE_CHECKING:
    import torch

    from simfl.learning.runner import Runner

_PASSES = 3  # the forward product, and backward one for the input's gradient and one for the weights'


class Trainer:
    """Trains users; safe to call from several threads at once.

    split: the data. parts: the training samples of each user. device: as for `runner.pick_device`. way: how
    cohorts are trained, None for the fastest as far as is known. dtype: what is computed in, None for
    float32. by_law: work is counted for a law of the model (see `training_time`), not in multiply-adds. `d`
    is the number of parameters. ValueError where the model cannot be built or trained so.
    """

    def __init__(
        self,
        split: Split,
        parts: Sequence[NDArray[np.int64]],
        model: Model,
        sgd: LocalSgd,
        device: str | None = None,
        way: Name | None = None,
        dtype: torch.dtype | None = None,
        by_law: bool = False,
    ) -> None:
        self.split, self.model, self.sgd, self.parts = split, model, sgd, list(parts)
        self._facts = facts(model, split.shape, split.classes)
        self.d = self._facts.d
        if way == "closed_form" and not self._facts.softmax:
            raise ValueError(f"closed_form is for softmax regression, not for model {model.name}")
        self._by_law = by_law
        self._how = (device, way, dtype)
        self._made: Runner | None = None
        self._lock = threading.Lock()
        self.training = Training(self)

    @property
    def _runner(self) -> Runner:
        with self._lock:
            if self._made is None:
                from simfl.learning.runner import Runner

                self._made = Runner(self.split, self.parts, self.model, self.sgd, *self._how)
            return self._made

    def samples(self, user: int) -> int:
        """How many training samples the user has."""
        return len(self.parts[user])

    def work(self, user: int) -> dict[str, int]:
        """What one local training of a user is charged as: its start and E n samples where there is a law of
        the model; otherwise multiply-adds, forward and backward, and minibatches. ValueError if the
        multiply-adds are not known."""
        passes = self.sgd.epochs * self.samples(user)
        if self._by_law:
            return {"train_start": 1, "train_sample": passes}
        if self._facts.macs is None:
            raise ValueError(self._facts.why)
        macs = self._facts.macs * passes * _PASSES
        return {"train_mac": macs, "train_step": self.sgd.steps(self.samples(user))}

    @property
    def way(self) -> Way:
        """The way in which cohorts are trained here."""
        return self._runner.way

    def initial(self, seed: Seed) -> F32:
        """x^(0) [1, d] (see `flat.initial`). seed: 32 bytes, also as uint8 [1, 32]."""
        return self._runner.initial(seed)

    def train(
        self, weights: Sequence[F32], users: Sequence[int], seeds: Sequence[Seed], rounds: Sequence[int]
    ) -> F32:
        """Delta_i = x^(t_i) - x_i^(E; t_i) of K clients, [K, d]: downloaded minus updated (LightSecAgg
        eqs. 24-25).

        weights: x^(t_i) [1, d] a client. seeds: 32 bytes each, also as uint8 [1, 32]; all that a client
        draws comes from its own. rounds: whose step sizes they take. A user without samples has a zero
        update. ValueError for weights or a seed of another shape.
        """
        return self._runner.train(weights, users, seeds, rounds)

    def evaluate(self, weights: F32) -> NDArray[np.float64]:
        """(accuracy, mean cross-entropy) on the test samples, [1, 2]. weights: [1, d]."""
        return self._runner.evaluate(weights)


class Training:
    """`Trainer.train` as a kernel: of one client, or of many that wait together.

    Every update of a run leaves its training here, so this is where one that diverged is found.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.__name__ = "train"

    @property
    def chunk(self) -> int:
        """How many clients are best trained at a time."""
        return self.trainer.way.chunk

    def __call__(self, weights: F32, user: int, seed: Seed, index: int) -> F32:
        delta = self.trainer.train([weights], [user], [seed], [index])
        if not np.isfinite(delta).all():
            raise Diverged(user, index)
        return delta

    def many(self, calls: Sequence[tuple[F32, int, Seed, int]]) -> list[F32 | Diverged]:
        """One result a call: the update [1, d], or that it is not finite, which is no fault of the others."""
        weights, users, seeds, rounds = zip(*calls, strict=True)
        rows = zip(self.trainer.train(weights, users, seeds, rounds), users, rounds, strict=True)
        # Copies: what is still needed of a cohort must not keep all of it in memory.
        return [
            row[None].copy() if np.isfinite(row).all() else Diverged(user, index) for row, user, index in rows
        ]
