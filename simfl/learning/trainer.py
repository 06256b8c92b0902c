"""Local training and evaluation: real SGD on users' samples, as a pure function of numpy arrays.

An update is a function of (weights, user, seed, round). In the loop it is so bit for bit, whatever
is trained before or beside it (on a GPU as far as its kernels are deterministic); the other ways differ
from it by rounding only. Torch is imported with the first training by autograd, and never for softmax
regression on a CPU: d, samples and work are known without.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from simfl.errors import Diverged, RunFailed
from simfl.learning.closed_form import ClosedForm
from simfl.learning.data.dataset import EVALUATED, F32, I64, U8, Dtype, Floats, Split
from simfl.learning.device_clock import Timer, timer_of
from simfl.learning.losses import CrossEntropy, Loss
from simfl.learning.minibatches import Cohort, Cutoff
from simfl.learning.models.facts import facts, law_name
from simfl.learning.models.model import Model
from simfl.learning.sgd import LocalSgd, TrainingMethod, TrainingTime, WayName, choose_method

if TYPE_CHECKING:
    from simfl.learning.autograd import Autograd

Seed = bytes | U8
"""32 bytes, also as an array [1, 32]."""

_COPIES = 3  # passes over the weights before and after the minibatches: W, the update and the check of it
_PASSES = 3  # the forward product, and backward one for the input's gradient and one for the weights'


_GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Drivers of NVIDIA, of Windows below Linux, and of AMD."""


def pick_device(requested: str) -> str:
    """Return the device for "cpu", "cuda" or "auto", a GPU if there is one. ValueError if "cuda" is none."""
    if requested == "auto" and sys.platform == "linux" and not any(map(os.path.exists, _GPU_FILES)):
        requested = "cpu"  # torch, which takes a second to import, could see no GPU without a driver
    if requested == "cpu":
        return "cpu"
    import torch

    if requested == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' was requested, but torch sees no CUDA GPU: use 'auto' or 'cpu'")
    return "cuda" if torch.cuda.is_available() else "cpu"


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
        with _pools(len(sys.modules)).limit(limits=1):
            yield
    finally:
        if training:
            torch.set_num_threads(threads)


@lru_cache(maxsize=1)
def _pools(modules: int) -> ThreadpoolController:
    """Return the thread pools of the libraries that are there. To look for them takes milliseconds, and only
    an import brings others: `modules` is how many are imported."""
    return ThreadpoolController()


_CROSS_ENTROPY = CrossEntropy()


class Trainer:
    """Trains users; safe for several threads at once.

    Args:
        split: The data set, split into training and test samples.
        parts: Numbers of each user's training samples.
        model: The model.
        sgd: Parameters of local training.
        device: As for `pick_device`.
        way: Training method, or `auto`.
        dtype: Type of the arithmetic.
        by_law: Work is counted for a `TrainingTime` of the model, not in multiply-adds.
        deterministic: See `settle_arithmetic`.
        loss: The loss.

    Raises:
        ValueError: If the model cannot be built, or trained so.
    """

    evaluates: bool = True
    """There is a test of the model."""
    stated: TrainingTime | None = None
    """The training-time model that the scenario states."""

    def __init__(
        self,
        split: Split,
        parts: Sequence[I64],
        model: Model,
        sgd: LocalSgd,
        device: str = "auto",
        way: WayName | Literal["auto"] = "auto",
        dtype: Dtype = np.float32,
        by_law: bool = False,
        deterministic: bool = False,
        loss: Loss = _CROSS_ENTROPY,
    ) -> None:
        self.split, self.model, self.sgd, self.parts = split, model, sgd, list(parts)
        self._facts = facts(model, split.shape, split.classes, split.tokens)
        self.d = self._facts.d
        self.loss = loss
        self._softmax = self._facts.softmax and isinstance(loss, CrossEntropy)
        if way == "closed_form" and not self._softmax:
            under = "" if isinstance(loss, CrossEntropy) else " under a loss of your own"
            raise ValueError(f"closed_form is for softmax regression, not for model {model.name}{under}")
        self._device, self._way, self._dtype, self._by_law = device, way, dtype, by_law
        self._deterministic = deterministic
        self.training = Training(self)

    def samples(self, user: int) -> int:
        return len(self.parts[user])

    def shapes(self) -> list[int]:
        """Return users whose trainings have, together, each shape of a minibatch that any user's has: of each
        size of the last one the user with the fewest samples, and the user with the most samples."""
        falling = sorted(range(len(self.parts)), key=self.samples, reverse=True)
        by_size = {self.samples(user) % self.sgd.batch_size: user for user in falling}  # the last one stays
        return sorted({*falling[:1], *by_size.values()})

    def steps(self, user: int) -> int:
        """Return the minibatches of a whole local training."""
        return self.sgd.epochs * -(-self.samples(user) // self.sgd.batch_size)

    def work(self, user: int, steps: int | None = None) -> dict[str, int]:
        """Return the work of one local training, or of its first `steps` minibatches: its start and samples
        passed over (E n of the whole) by a law of the model, or multiply-adds, forward and backward; and
        minibatches. ValueError if those are not known."""
        n, whole = self.samples(user), self.steps(user)
        steps = whole if steps is None else steps
        epochs, more = divmod(steps, max(1, whole // self.sgd.epochs))
        samples = epochs * n + min(more * self.sgd.batch_size, n)
        if self._by_law:
            return {"train_start": 1, "train_step": steps, "train_sample": samples}
        macs = self._facts.macs * _PASSES
        if self._softmax and self._way in ("auto", "closed_form"):  # whatever the device is
            # A minibatch that is not whole is filled up, and W is read and written in each.
            width = min(self.sgd.batch_size, n)
            counts = {"softmax_mac": macs * width * steps, "softmax_weight": self.d * (steps + _COPIES)}
            return {"softmax_start": 1, "softmax_step": steps, **counts}
        return {"train_mac": macs * samples, "train_step": steps}

    @cached_property
    def device(self) -> str:
        return pick_device(self._device)

    @cached_property
    def timer(self) -> Timer:
        """The clock of what training takes on the device."""
        return timer_of(self.device)

    @cached_property
    def way(self) -> TrainingMethod:
        """The way in which cohorts are trained here."""
        return choose_method(self._way, self._softmax, self.device, self._facts.recurrent)

    @property
    def law_name(self) -> str:
        """The name of its model in a profile's laws."""
        return law_name(self.model, self._facts)

    @property
    def beyond_attacks(self) -> str:
        """The reason why attacks, which know models of numbers that are sent whole, do not know this one."""
        if self.split.tokens:
            return "its samples are tokens"
        if self._facts.partly:
            return "some of its parameters are not sent"
        return "" if isinstance(self.loss, CrossEntropy) else "its loss is not cross-entropy"

    @property
    def by_torch(self) -> bool:
        return self.way.name != "closed_form" or self.device != "cpu"

    @cached_property
    def chunk(self) -> int:
        """The clients that are trained at a time: on a GPU, as many as its memory is predicted to hold."""
        if self.device == "cpu" or self.way.chunk == 1:
            return self.way.chunk
        from simfl.learning.on_device import fitting, free_bytes

        return fitting(self.way.chunk, self.client_bytes, free_bytes(self.device))

    @cached_property
    def client_bytes(self) -> int:
        """The memory that the largest client is predicted to take, see `on_device.client_bytes`."""
        from simfl.learning.on_device import client_bytes

        most, itemsize = max(map(len, self.parts), default=0), np.dtype(self._dtype).itemsize
        width, saved = min(self.sgd.batch_size, most), self._learner.saved()
        return client_bytes(self.d, saved, width, self.sgd.epochs * most, itemsize, bool(self.sgd.momentum))

    @cached_property
    def _learner(self) -> ClosedForm | Autograd:
        if self.by_torch:
            from simfl.learning.on_device import settle_arithmetic

            settle_arithmetic(self.device, self._deterministic)
        if self.way.name == "closed_form":
            return ClosedForm(self.split, self.device, self._dtype)
        from simfl.learning.autograd import Autograd

        together = self.way.name == "vectorised"
        return Autograd(self.model, self.split, self.device, self._dtype, together, self.loss)

    def initial(self, seed: Seed) -> F32:
        """Return x^(0) [1, d]: see `kaiming`."""
        return self._learner.initial(bytes(seed))[None]

    def train(
        self,
        weights: Sequence[F32],
        users: Sequence[int],
        seeds: Sequence[Seed],
        rounds: Sequence[int],
        steps: Sequence[int | None] | None = None,
        cutoff: Cutoff | None = None,
    ) -> Floats:
        """Return Delta_i = x^(t_i) - x_i^(E; t_i) of K clients, [K, d]: downloaded minus updated (LightSecAgg
        eqs. 24-25); zero for a user without samples.

        weights: x^(t_i) [1, d] a client. seeds: all that a client draws comes from its own. rounds: whose
        step sizes they take. steps: the minibatches after which a client stops, None for all. cutoff: of one
        client, whose time decides. ValueError for weights or a seed of another shape.
        """
        limits = [None] * len(users) if steps is None else steps
        whole = [self.steps(user) for user in users]
        todo = [all_ if most is None else min(most, all_) for most, all_ in zip(limits, whole, strict=True)]
        # Of equal steps the larger first: without limits, the order is that of the samples.
        order = sorted(range(len(users)), key=lambda k: (-todo[k], -self.samples(users[k])))
        starts = np.stack([self._start(weights[k]) for k in order])
        update = np.empty_like(starts)
        parts, keys = [self.parts[users[k]] for k in order], [bytes(seeds[k]) for k in order]
        lrs = [self.sgd.lr_at(rounds[k]) for k in order]
        cohort = Cohort(starts, parts, keys, self.sgd, lrs, [todo[k] for k in order], cutoff)
        with np.errstate(over="ignore", invalid="ignore"):  # of a training that diverges
            if cutoff is not None:
                began_ns = self.timer.now_ns()
                cutoff.spent_ns = lambda: self.timer.amid_kernels_ns() - began_ns
            with self.timer.kernels():
                trained = self._trained(cohort)
            update[order] = starts - trained
        return update

    def _trained(self, cohort: Cohort) -> Floats:
        """Train a cohort; where the device's memory is too small for it, in halves, and no more at a time
        from then on. RunFailed if it is too small for one client."""
        if not self.by_torch:
            return self._learner.train(cohort)
        from simfl.learning.on_device import free_bytes, out_of_memory

        done: list[Floats] = []
        if not out_of_memory(lambda: done.append(self._learner.train(cohort))):
            return done[0]
        K = len(cohort.parts)
        if K == 1:
            needed, free = (f"{size / 1e9:.3g} GB" for size in (self.client_bytes, free_bytes(self.device)))
            remedy = "use a smaller learning.batch_size, or learning.device: cpu"
            raise RunFailed(
                f"the device's memory is too small to train a single client of model {self.model.name}: "
                f"predicted {needed}, available {free}; {remedy}"
            )
        self.chunk = min(self.chunk, -(-K // 2))
        halves = cohort.part(0, -(-K // 2)), cohort.part(-(-K // 2), K)
        return np.concatenate([self._trained(half) for half in halves])

    def evaluate(self, weights: F32) -> NDArray[np.float64]:
        """Return (accuracy, mean loss) on the test samples, [1, 2], for weights [1, d].

        Batch statistics, where a model has them, are those of `EVALUATED` samples.
        """
        start, made, count, total = self._start(weights), self._learner, len(self.split.y_test), np.zeros(2)
        with np.errstate(over="ignore", invalid="ignore"):
            for rows in np.split(np.arange(count), range(EVALUATED, count, EVALUATED)):
                z, y = made.logits(start, self.split.x_test[rows]).astype(np.float64), self.split.y_test[rows]
                if isinstance(made, ClosedForm) or isinstance(self.loss, CrossEntropy):
                    z -= z.max(axis=1, keepdims=True)
                    losses = np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]
                else:
                    losses = made.losses(z, y)
                total += (z.argmax(axis=1) == y).sum(), losses.sum()
        return total[None] / count

    def _start(self, weights: F32) -> Floats:
        if weights.shape != (1, self.d) or weights.dtype != np.float32:
            raise ValueError(f"weights are {weights.dtype} {weights.shape}, not float32 (1, {self.d})")
        start: Floats = weights[0].astype(self._dtype)
        return start


class Training:
    """`Trainer.train` as a kernel of one client or many, in which an update that diverged is found."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.__name__ = "train"

    @property
    def chunk(self) -> int:
        return self.trainer.chunk

    def __call__(
        self, weights: F32, user: int, seed: Seed, index: int, steps: int | Cutoff | None = None
    ) -> F32:
        cutoff, most = (steps, None) if isinstance(steps, Cutoff) else (None, steps)
        delta = self.trainer.train([weights], [user], [seed], [index], [most], cutoff)
        if not np.isfinite(delta).all():
            raise Diverged(user, index)
        return delta

    def many(self, calls: Sequence[tuple[F32, int, Seed, int, int | None]]) -> list[F32 | Diverged]:
        """Return each call's update [1, d], or that it is not finite, which is no fault of the others."""
        weights, users, seeds, rounds, steps = zip(*calls, strict=True)
        return self.each(self.trainer.train(weights, users, seeds, rounds, steps), users, rounds)

    def each(self, updates: Floats, users: Sequence[int], rounds: Sequence[int]) -> list[F32 | Diverged]:
        """Return the rows of `Trainer.train` one by one, as `many` does."""
        rows = zip(updates, users, rounds, strict=True)
        # Copies: what is still needed of a cohort must not keep all of it in memory.
        return [
            row[None].copy() if np.isfinite(row).all() else Diverged(user, index) for row, user, index in rows
        ]
