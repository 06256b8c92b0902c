"""What is learned: the data and how users share it, the model, and local SGD."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simfl.scenario.blocks import Block, Count, Positive, shorthand


class Iid(Block):
    """Samples dealt at random, equally."""

    kind: Literal["iid"] = "iid"


class Dirichlet(Block):
    """Label shares per user drawn from a Dirichlet distribution with parameter beta."""

    kind: Literal["dirichlet"] = "dirichlet"
    beta: Positive
    min_samples: Count = 1


Partition = Annotated[Iid | Dirichlet, Field(discriminator="kind"), shorthand(dirichlet="beta")]


class Learning(Block):
    """Data, model and local SGD (LightSecAgg eqs. 24-25); `server_lr` is eta_g of eq. 26."""

    dataset: Literal["digits"] = "digits"
    partition: Partition = Iid()
    model: Literal["logistic", "cnn"] = "logistic"
    epochs: Count = 5
    batch_size: Count = 10
    lr: Positive = 0.1
    server_lr: Positive = 1.0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    evaluate_every: Count = 1
