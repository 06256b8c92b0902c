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
    """Word to a surplus user: the server has enough uploads of its round."""

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
    behind: Callable[[int, int], int] | None = None  # of a user's cycle: how old its model shall be
    most_behind: int = 0
    audits: bool = True  # as each round closes; False where users' updates are elsewhere


@dataclass(frozen=True, slots=True)
class ProtocolSetup:
    """A protocol in a run: its parameters, its sources of entropy, and makers of its machines.

    client, server: `Protocol.client` and `Protocol.server`, unless somebody watches what they make.
    """

    name: str
    kind: Protocol
    params: Params
    entropy: Callable[..., Any]
    losses: Losses | LossesByClass
    client: Callable[[int, Params, Ops, Entropy], ClientMachine]
    server: Callable[[Sequence[int], Params, Ops, Entropy], AnyServer]

    @property
    def first_phase(self) -> str:
        """The phase with which a round begins."""
        return "offline" if self.kind.offline else "training"

    def in_round(self, index: int) -> Params:
        """Return the parameters in one round, whose number is part of what is signed in it."""
        return replace(self.params, round=index)


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """A finished round, as handles whose content may still be on its way.

    clipped: whether each member's update was clipped by the scenario's rule. record: what is kept of the
    round's updates, if that is asked for. standing: for a run that may be resumed.
    """

    round: int
    at: int
    audit: Handle | None
    evaluation: Handle | None
    rate: float | None = None
    clipped: tuple[Handle, ...] = ()
    record: RecordedRound | None = None
    standing: Standing | None = None
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
class Standing:
    """State of a session at the end of a round that a resumed one cannot derive again.

    rows: of the trace so far. models: version -> global model [1, d], those that a user still works with, and
    the latest. moments: of an adaptive server, [2, d]. running: under a clock that measures, the steps in
    progress with their durations.
    """

    rows: int
    models: dict[int, Handle]
    moments: Handle | None
    running: tuple[tuple[Key, Spans], ...]


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """A round's aggregate and what went into it: the mean g [1, d], and each member with its weight and its
    update [1, d]."""

    mean: Handle
    members: tuple[int, ...]
    weights: tuple[float, ...]
    updates: tuple[Handle, ...]
