"""What is learned: the data and how users share it, the model, local SGD, and the server's step."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simfl.blocks import (
    Block,
    Count,
    Fraction,
    Natural,
    NonNegative,
    Positive,
    Text,
)
from simfl.learning.clipping import AnyClip, NoClip
from simfl.learning.data.bundled import Digits
from simfl.learning.data.registry import AnyDataset
from simfl.learning.models.registry import AnyModel, Logistic
from simfl.learning.partition import AnyPartition, Iid
from simfl.learning.server_opt import AnyServerRule, Averaging


# --- data ---------------------------------------------------------------------------------------
class Data(Block):
    """Where published data sets lie; the environment's SIMFL_DATA where `root` is not given."""

    root: Text | None = None
    """The folder, from the scenario's."""


# --- steps --------------------------------------------------------------------------------------
class Decay(Block):
    """The local step size is multiplied by `factor` at each round in `at`."""

    factor: Positive
    """What the step size is multiplied by."""
    at: Annotated[tuple[Natural, ...], Field(min_length=1, max_length=32)]
    """Rounds, counted from 0; several multiply up."""


class Learning(Block):
    """Data, model, local SGD (LightSecAgg eqs. 24-25) and the server's step, of size `server_lr` (eq. 26)."""

    dataset: AnyDataset = Digits()
    """See `simfl list datasets`."""
    data: Data = Data()
    """Where published data sets lie."""
    partition: AnyPartition = Iid()
    """How users share the samples."""
    model: AnyModel = Logistic()
    """See `simfl list models`."""
    epochs: Count = 5
    """E, passes over a user's samples."""
    batch_size: Count = 10
    """Samples of a minibatch."""
    lr: Positive = 0.1
    """The local step size."""
    lr_decay: Decay | None = None
    """How `lr` falls; it stays as it is unless given."""
    momentum: Annotated[Fraction, Field(lt=1)] = 0.0
    """Of local SGD, below 1."""
    weight_decay: NonNegative = 0.0
    """Of local SGD."""
    mu: NonNegative = 0.0
    """The weight of FedProx's term."""
    clip: AnyClip = NoClip()
    """How each update is bounded before it is sent."""
    server: AnyServerRule = Averaging()
    """The server's rule."""
    server_lr: Positive = 1.0
    """The server's step size (eq. 26)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto`: a GPU if torch sees one."""
    way: Literal["auto", "loop", "vectorised", "closed_form"] = "auto"
    """How cohorts are trained: `auto` knows what is fastest where; `clock: measured` always takes `loop`."""
    evaluate_every: Count = 1
    """Rounds from one evaluation to the next."""
