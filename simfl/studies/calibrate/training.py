"""The seconds of local training: of minibatches and multiply-adds, and by the law T = a + b E n of models."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from simfl.learning.data import Split
from simfl.learning.data.unpublished import Digits
from simfl.learning.models import MODELS, Model
from simfl.learning.partition import Iid
from simfl.learning.sgd import SIZES, Law, LocalSgd, fit
from simfl.learning.trainer import Trainer
from simfl.random_streams import Streams
from simfl.studies.calibrate.kernels import STREAMS, Rates, seconds, solve


@dataclass(frozen=True)
class Training:
    """A model on samples of a shape, in batches."""

    model: Model
    shape: tuple[int, ...]
    classes: int
    batch_size: int


PAPERS = (
    Training(MODELS["logistic"](), (1, 28, 28), 10, 10),
    Training(MODELS["mcmahan_cnn"](), (1, 28, 28), 10, 10),
    Training(MODELS["femnist_cnn"](), (1, 28, 28), 62, 10),
    Training(MODELS["lenet5"](), (3, 32, 32), 10, 10),
    Training(MODELS["lenet5"](), (3, 32, 32), 10, 50),
)
"""Of the papers. The models on 8 x 8 digits have no law: what a minibatch costs outweighs its samples there,
so minibatches and multiply-adds are charged."""


def measure(training: Training) -> Callable[[], Law]:
    """Return a measurement that times clients of five sizes once each, and fits the law to them."""
    rng = Streams(1).rng("samples", training.model.name)
    sizes = sorted({math.ceil(k * training.batch_size) for k in SIZES})
    x = rng.random((sizes[-1], *training.shape), np.float32)
    y = rng.integers(0, training.classes, len(x))
    split = Split(x, y, x[:1], y[:1], training.classes)
    sgd = LocalSgd(1, training.batch_size, 0.1)
    trainer = Trainer(split, [np.arange(size) for size in sizes], training.model, sgd, "cpu", "loop")
    weights = trainer.initial(bytes(32))

    def once() -> Law:
        calls = [partial(trainer.training, weights, user, bytes(32), 0) for user in range(len(sizes))]
        return fit([(size, seconds(call, 1)) for size, call in zip(sizes, calls, strict=True)])

    return once


def by_steps() -> Callable[[], Rates]:
    """Return a measurement of a minibatch and a multiply-add: tiny models on digits, clients of two sizes."""
    split = Digits().loaded(STREAMS.rng("data"))
    trainers = [
        Trainer(split, Iid().dealt(split, users, STREAMS.rng("partition")), MODELS[model](),
                LocalSgd(5, 10, 0.1), "cpu", "loop")
        for model in ("logistic", "cnn") for users in (100, 20)
    ]  # fmt: skip

    def measure() -> Rates:
        rows = []
        for trainer in trainers:
            taken = seconds(partial(trainer.training, trainer.initial(bytes(32)), 0, bytes(32), 0))
            work = trainer.work(0)
            rows.append((float(work["train_step"]), float(work["train_mac"]), taken))
        return dict(zip(("train_step", "train_mac"), solve(*rows), strict=True))

    return measure
