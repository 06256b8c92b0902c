"""The contract of a protocol: one block, whose fields are its scenario keys, that makes its machines.

    class Pads(Protocol):
        '''A sum under pads that a trusted server deals.'''
        points, timers, model_with = ("upload",), ("upload",), (Pad, Pad)
        spare: Count = 1

        def needed(self, stage, p): return p.N - p.D - self.spare
        def client(self, user, p, ops, entropy): return PadsClient(user, p, ops, entropy)
        def server(self, users, p, ops, entropy): return PadsServer(users, p, ops, entropy)

`examples/dealt_pads.py` is whole. `contracts` says what the machines must offer that `client` and `server`
return; `Client` and `Server` (rounds), `BufferedClient` and `BufferedServer` (buffers) do so by a table.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, ClassVar

from simfl.config.blocks import Block
from simfl.dataplane.ops import Ops
from simfl.protocols.contracts import AnyServer, ClientMachine
from simfl.protocols.definitions import SIGNED_POINTS as SIGNED_POINTS
from simfl.protocols.definitions import SIGNED_STAGES as SIGNED_STAGES
from simfl.protocols.definitions import check_known, place_of
from simfl.protocols.graph_design import Failure
from simfl.protocols.machine import Entropy, Message, Params

KEYED = ("advertise", "shares", "training", "upload", "recovery")
PLAIN = ("training", "upload")
"""Points of a protocol with keys, shares and a recovery, and of one in which users only upload."""
STAGES = ("advertise", "shares", "upload", "recovery")

Problems = Iterator[tuple[str, str]]
"""(key, message): a key of the protocol's own block, or a dotted path of the scenario such as `privacy.T`."""


class Mode(StrEnum):
    ROUNDS = "rounds"
    BUFFERED = "buffered"


class Protocol(Block):
    """A protocol: what a scenario must know of it, and its machines.

    Attributes:
        mode: Rounds, or aggregations of a buffer.
        points: Points of a round at which its users act, and so can be lost.
        timers: Deadlines that its server sets.
        model_with: Messages that carry the model to a user: if the offline phase runs beside training,
            and if it comes first. None without an offline phase, where the sum is over the reals.
        weighted: An update counts by its samples.
        connected: Idle users stay connected: the server can send to them at any time, and is notified of
            their churn.
        streams: Coded shares may be summed as they arrive.
        batches: Its machines keep batches together (`Params.batches`).

    >>> from simfl.protocols.lightsecagg import LightSecAgg  # a subclass
    >>> LightSecAgg().needed("upload", Params(d=650, q=101, N=10, T=3, D=2, U=8)), LightSecAgg().offline
    (8, True)
    """

    mode: ClassVar[Mode] = Mode.ROUNDS
    points: ClassVar[tuple[str, ...]] = PLAIN
    timers: ClassVar[tuple[str, ...]] = ("upload",)
    model_with: ClassVar[tuple[type[Message], type[Message]] | None] = None
    weighted: ClassVar[bool] = True
    connected: ClassVar[bool] = True
    streams: ClassVar[bool] = False
    batches: ClassVar[bool] = False
    member_bytes: ClassVar[int] = 15_000
    """Of a user in a round or in flight, as measured: device, links, machine, messages, and their rows."""
    pair_bytes: ClassVar[int] = 0
    """Of each user, or mask, that a user knows of, as measured."""

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        """Check what is stated of a protocol when its class is defined; TypeError names file and class."""
        super().__pydantic_init_subclass__(**more)
        check_known(cls, "point", cls.points, SIGNED_POINTS)
        check_known(cls, "timer", cls.timers, SIGNED_STAGES)
        check_known(cls, "mode", [cls.mode], [mode.value for mode in Mode])
        if lacking := {"training", "upload"} - set(cls.points):
            raise TypeError(f"{place_of(cls)}: its points lack {', '.join(sorted(lacking))}")
        for message in cls.model_with or ():
            if not (isinstance(message, type) and issubclass(message, Message)):
                raise TypeError(f"{place_of(cls)}: its model_with has {message!r}, no type of messages")

    @property
    def offline(self) -> bool:
        """True if there is an offline phase, whose masks hide updates in a field."""
        return self.model_with is not None

    @property
    def asynchronous(self) -> bool:
        return self.mode is Mode.BUFFERED

    @property
    def round_points(self) -> tuple[str, ...]:
        """The points of a round under these settings."""
        return self.points

    @property
    def round_timers(self) -> tuple[str, ...]:
        """The deadlines of a round under these settings."""
        return self.timers

    @abstractmethod
    def client(self, user: int, p: Params, ops: Ops, entropy: Entropy) -> ClientMachine:
        """Return a user's machine: for one round, or for a whole run over a buffer."""

    @abstractmethod
    def server(self, users: Sequence[int], p: Params, ops: Ops, entropy: Entropy) -> AnyServer:
        """Return the server's machine: for a round of these users, or for a whole run over a buffer."""

    @abstractmethod
    def needed(self, stage: str, p: Params) -> int:
        """Return the answers without which a stage cannot close, as the paper has it: the explorer holds the
        machines to it, so it is told here without asking them."""

    def withstands(self, p: Params) -> int | None:
        """Return how many users can pool what they see with the server and learn sums alone, whoever is lost;
        None where that is not promised. The explorer holds the machines to it."""
        return p.T if self.offline else None

    def failure(self, p: Params) -> Failure:
        """Return bounds on the probabilities that a round is insecure, where T users collude, and that it
        has no sum, where D are lost: `simfl plan` takes no settings that fail too often."""
        hidden, needed = self.withstands(p), max(self.needed(stage, p) for stage in self.timers)
        return Failure(
            0.0 if hidden is not None and hidden >= p.T else 1.0, 0.0 if needed <= p.N - p.D else 1.0
        )

    def designs(self, p: Params, sigma: float, eta: float) -> Iterator[dict[str, Any]]:
        """Yield settings that `simfl plan` tries, the likely fastest first: keys of its own, or dotted paths
        of the scenario. A round is to be insecure with at most 2^-sigma, and to fail with at most 2^-eta."""
        yield {}

    def params(self, p: Params) -> Params:
        """Return the scenario's parameters with the protocol's own letters."""
        return p

    def derived(self, p: Params) -> dict[str, Any]:
        """Return what its rules make of keys that are not given, of the scenario's parameters."""
        own = self.params(p)
        absent = [key for key in type(self).model_fields if getattr(self, key) is None]
        return {key: getattr(own, key) for key in absent if hasattr(own, key)}

    def problems(self, p: Params) -> Problems:
        """Yield what is wrong with the parameters; nothing is computed from wrong ones."""
        yield from ()

    def notes(self, p: Params) -> Iterator[str]:
        """Yield what `simfl check` says of the parameters, a sentence each."""
        yield from ()

    def pairs(self, p: Params, users: int, members: int) -> float:
        """Return how many pairs of users know of each other, where `members` of `users` are in a round."""
        return float(p.N**2)

    def shares_bytes(self, p: Params, users: int) -> int:
        """Return a bound on the bytes of shares that a run of so many users holds at once."""
        return 0

    def relayed_bytes(self, p: Params) -> int:
        """Return the bytes of shares that users have for each other in a round, at least: `simfl plan` runs
        nothing that they alone make too slow."""
        return 0

    def sum_weight(self, p: Params, heaviest: int | None) -> int | None:
        """Return the largest sum of integer weights in an aggregate over the field; None for one over the
        reals, and while it is not known how many samples the `heaviest` user has."""
        return p.N * heaviest if self.offline and heaviest is not None else None

    @classmethod
    def small(cls, users: int, lost: int) -> dict[str, Any]:
        """Return settings for the explorer's cohorts of so few users, of whom as many may be lost."""
        return {}
