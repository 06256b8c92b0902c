"""Trainer, partition and server step together learn the digits, fresh and stale."""

import numpy as np

from simfl.learning.data.unpublished import Digits
from simfl.learning.models import MODELS
from simfl.learning.partition import Iid
from simfl.learning.server_opt import Averaging
from simfl.learning.sgd import LocalSgd
from simfl.learning.trainer import Trainer
from simfl.protocols.staleness import Polynomial
from simfl.random_streams import Streams


def make(users: int, epochs: int, lr: float, device: str) -> tuple[Streams, Trainer]:
    streams = Streams(1)
    split = Digits().loaded(streams.rng("data"))
    parts = Iid().dealt(split, users, streams.rng("partition"))
    return streams, Trainer(
        split, parts, MODELS["logistic"](), LocalSgd(epochs, 10, lr), device, "closed_form"
    )


def test_federated_averaging_learns_the_digits(device: str) -> None:
    streams, trainer = make(users=20, epochs=5, lr=0.5, device=device)
    weights = trainer.initial(streams.bytes("initial"))
    for t in range(6):
        seeds = [streams.bytes("train", user, t) for user in range(20)]
        deltas = trainer.train([weights] * 20, range(20), seeds, [t] * 20)
        weights = Averaging().apply(weights, np.mean(deltas, axis=0, dtype=np.float64, keepdims=True), 1.0)
    assert trainer.evaluate(weights)[0, 0] > 0.94


def test_stale_updates_in_a_buffer_learn_the_digits(device: str) -> None:
    # 10 of 100 users an aggregation, staleness uniform on 0 .. 10. eta_g = 1 oscillates here: long local
    # training and a small server step keep the loop with its delay stable.
    streams, trainer = make(users=100, epochs=10, lr=1.0, device=device)
    draws = streams.rng("arrivals")
    models = [trainer.initial(streams.bytes("initial"))]
    for t in range(40):
        users = draws.choice(100, 10, replace=False)
        taus = np.minimum(draws.integers(0, 11, 10), t).tolist()
        s = [Polynomial(alpha=1.0)(tau) for tau in taus]
        seeds = [streams.bytes("train", user, t) for user in users.tolist()]
        deltas = trainer.train([models[t - tau] for tau in taus], users.tolist(), seeds, [t] * 10)
        g = np.average(deltas.astype(np.float64), axis=0, weights=s)[None]
        models.append(Averaging().apply(models[-1], g, 0.4))
    assert trainer.evaluate(models[-1])[0, 0] > 0.93
