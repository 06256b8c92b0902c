"""Inputs of a session (the world, a protocol's machines) and its outputs (closed rounds)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simfl.dataplane.handles import Handle
from simfl.dataplane.ops import Ops
from simfl.engine.clocks import Key, Spans
from simfl.engine.environment import Environment
from simfl.learning.clipping import Clip
from simfl.learning.partial_work import PartialWork
from simfl.protocols.contracts import AnyServer, ClientMachine
from simfl.protocols.machine import Entropy, Message, Params, Result, Subject, UpdateId
from simfl.protocols.protocol import Protocol
from simfl.world.availability import OnlineSchedule
from simfl.world.classes import LossesByClass
from simfl.world.dropout import Losses
from simfl.world.energy import EnergyOf, Powers
from simfl.world.participation import Participation

if TYPE_CHECKING:
    from simfl.engine.links import Network
    from simfl.engine.user_side import UserRound


@dataclass(frozen=True, slots=True)
class ModelDownload(Message):
    """The global model x^(t) on its way to a user, t = version: the update says on which it was made."""

    kind = "model"
    phase = "training"
    weights: Handle
    update: UpdateId | None = None
    version: int = 0

    @property
    def size_bytes(self) -> int:
        return self.weights.size_bytes + 8  # of the update and the version

    @property
    def subject(self) -> Subject:
        return self.update


@dataclass(frozen=True, slots=True)
class Stop(Message):
    """Notice to a surplus user: the server has enough uploads of its round."""

    kind = "stop"
    phase = "upload"
    round: int


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The world that is the same for every protocol: users, devices, links, rules. Times in nanoseconds."""

    users: int
    rounds: int
    slowdown: NDArray[np.float64]
    cores: NDArray[np.int64]
    server_slowdown: float
    server_cores: int
    network: Callable[[Environment], Network]
    overhead_ns: int
    overlap: bool
    deadlines_ns: dict[str, int]
    quorum: dict[str, float]
    disconnect_ns: int | None
    in_round: Callable[[int], NDArray[np.bool_]] | None
    days: OnlineSchedule | None
    samples: Callable[[int], int]
    select: Callable[[Sequence[int], Participation, int], list[int] | None]
    clip: Clip | None
    server_lr: float
    training_noise: Callable[[int, int | str], float] | None
    evaluate_every: int
    concurrency: int | None = None
    return_ns: int | None = None
    horizon_ns: int | None = None
    record: bool = False
    energy_of: EnergyOf | None = None
    server_powers: Powers | None = None
    partial: PartialWork | None = None
    batteries: bool = False
    codec: bool = False
    model_lag: Callable[[int, int], int] | None = None
    """(user, cycle) -> versions by which its model is prescribed to be older than the latest."""
    max_model_lag: int = 0
    """Greatest prescribed lag, versions."""
    audits: bool = True  # as each round closes; False where users' updates are elsewhere


@dataclass(frozen=True, slots=True)
class ProtocolSetup:
    """A protocol in a run: its parameters, its sources of entropy, and makers of its machines."""

    name: str
    """Name of the scenario's entry."""
    kind: Protocol
    params: Params
    entropy: Callable[..., Any]
    """(party, round) -> entropy of a machine."""
    losses: Losses | LossesByClass
    """Planned losses of users."""
    client: Callable[[int, Params, Ops, Entropy], ClientMachine]
    """`Protocol.client`, or a wrapper that observes the machines."""
    server: Callable[[Sequence[int], Params, Ops, Entropy], AnyServer]
    """`Protocol.server`, or a wrapper that observes the machines."""

    @property
    def first_phase(self) -> str:
        """The phase with which a round begins."""
        return "offline" if self.kind.offline else "training"

    def in_round(self, index: int) -> Params:
        """Return the parameters in one round, whose number is part of what is signed in it."""
        return replace(self.params, round=index)


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """A finished round, as handles whose content may not be computed yet."""

    round: int
    at: int
    """Virtual time of its end, ns."""
    audit: Handle | None
    """Comparison of the aggregate with the plain sum."""
    evaluation: Handle | None
    """Accuracy and loss of the global model."""
    rate: float | None = None
    """Dropout rate of the scenario in this round."""
    clipped: tuple[Handle, ...] = ()
    """Per member, whether the scenario's rule clipped its update."""
    record: RecordedRound | None = None
    """The round's updates, where the scenario records them."""
    checkpoint: RoundCheckpoint | None = None
    """State to resume from, for a run that may be resumed."""
    unaudited: Aggregate | None = None
    """Input of an audit after the run, where rounds close without."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A round's aggregate."""

    result: Result
    involved: Sequence[tuple[UserRound, float]]
    """Its members' parts, with their factors."""
    weights: Handle
    """The global model after it, 1 x d float32."""


@dataclass(frozen=True, slots=True)
class RoundCheckpoint:
    """State of a session at the end of a round that a resumed one cannot derive again.

    Attributes:
        rows: Length of the trace.
        models: Version -> global model [1, d]: those that a user still works with, and the latest.
        moments: Memory of an adaptive server [2, d], if it has one.
        running: Under a clock that measures, the steps in progress with their durations.
    """

    rows: int
    models: dict[int, Handle]
    moments: Handle | None
    running: tuple[tuple[Key, Spans], ...]


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """A round's aggregate and its members."""

    mean: Handle
    """The weighted mean g of the updates, [1, d]."""
    members: tuple[int, ...]
    """Users in the aggregate."""
    weights: tuple[float, ...]
    """Weight of each member."""
    updates: tuple[Handle, ...]
    """Update of each member, [1, d]."""
