"""State machines without a clock: a call goes in, effects come out.

The driver of a machine (the loopback, the SimPy engine) delivers messages, fires timers and carries out the
effects. A machine's law is its table: for a client which message is taken in which state, for a server which
messages each stage collects. Anything else is answered with `Ignore`, so no driver needs cancellation.

Two kinds of error are told apart: `PeerFault` (a peer's message is not honest) becomes a `Refuse` effect;
`ValueError` (the caller misuses the machine) is raised.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar

from simfl.crypto.shamir import P
from simfl.dataplane.handles import DType, Handle
from simfl.dataplane.ops import Ops
from simfl.protocols.batches import SINGLES, Batches
from simfl.protocols.definitions import SIGNED_POINTS, check_known
from simfl.protocols.long_term_keys import Directory
from simfl.trace.codes import Discarded as Discarded
from simfl.trace.codes import Reason as Reason
from simfl.trace.codes import RecoveryId as RecoveryId
from simfl.trace.codes import Refusal as Refusal
from simfl.trace.codes import Subject as Subject
from simfl.trace.codes import UpdateId as UpdateId
from simfl.trace.codes import name_of as name_of
from simfl.trace.rows import PHASES
from simfl.trace.rows import SERVER as SERVER

Entropy = Callable[[str], bytes]
"""32 bytes by name; asking twice for one name is an error."""

Number = Annotated[int, "number"]
"""A whole number in a message's list that is no user, as those of `tuple[int, ...]` are."""

INT_BYTES = 4  # a public integer (a user's number, a weight, a version) on the wire


@dataclass(frozen=True, slots=True)
class Message:
    """A message between parties.

    Attributes:
        kind: Its word on the wire and in traces.
        phase: Phase of a round that its bytes count to.
        point: Point of a round at which its sender can be lost.
        relayed: It holds content from users for other users.

    >>> @dataclass(frozen=True, slots=True)
    ... class Greeting(Message):
    ...     kind, phase = "greeting", "offline"
    ...     round: int
    >>> Greeting(3).size_bytes
    4
    """

    kind: ClassVar[str]
    phase: ClassVar[str]
    point: ClassVar[str | None] = None
    relayed: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        # Where a class has slots it is defined twice, and `super()` would be of the first.
        super(Message, cls).__init_subclass__()
        check_known(cls, "phase", {getattr(cls, "phase", PHASES[0])}, PHASES)
        check_known(cls, "point", {cls.point} - {None}, SIGNED_POINTS)

    @property
    def size_bytes(self) -> int:
        """Bytes on the wire, those of the fields: of an array its own, 4 of a public number or of an update
        (its cycle: who sent it is known), 8 of an update in a list. The RPC layer's own cost is the network's
        overhead, not here."""
        kind: Any = type(self)
        return sum([_bytes_of(getattr(self, name)) for name in _field_names(kind)])

    @property
    def subject(self) -> Subject:
        """The update or the recovery that this is part of, in an asynchronous run."""
        return None


@cache
def _field_names(message: Any) -> tuple[str, ...]:
    return tuple(part.name for part in fields(message))


_NUMBERS = (int, UpdateId, RecoveryId)  # a union would be made anew for each field


def _bytes_of(value: Any) -> int:
    if isinstance(value, Handle):
        return value.size_bytes
    if value is None:
        return 0
    if isinstance(value, _NUMBERS):
        return INT_BYTES
    of_updates = len(value) > 0 and isinstance(value[0], UpdateId)
    return (INT_BYTES + INT_BYTES * of_updates) * len(value)


@dataclass(frozen=True, slots=True)
class Update:
    """A user's local update, 1 x d float32, with its weight; in an asynchronous run it has an `id`, and
    `version` is t_i, the version it was made on.

    >>> from simfl.dataplane.handles import F32
    >>> Update(Handle(1, 650, F32), weight=50).delta
    Handle(1 x 650 float32)
    """

    delta: Handle
    weight: int
    id: UpdateId | None = None
    version: int = 0


# --- effects ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Send:
    """A message to a user, or to `SERVER`.

    >>> Send(SERVER, Message()).to
    -1
    """

    to: int
    message: Message


@dataclass(frozen=True, slots=True)
class Timer:
    """Call `expire(self)` when the scenario's deadline `name` has passed."""

    name: str
    phase: str
    subject: Subject = None


@dataclass(frozen=True, slots=True)
class Ready:
    """The offline phase is done: from here on the machine only waits for `submit`."""

    update: UpdateId | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One update in an aggregate: whose, which, by what factor, and how stale.

    >>> tuple(map(Member, (3, 5)))[1].user
    5
    """

    user: int
    update: UpdateId | None = None
    factor: float = 1
    staleness: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """One aggregate: the sum over `members` in that order, and the mean update g that it stands for.

    >>> from simfl.dataplane.handles import F32, U32
    >>> Result(Handle(1, 651, U32), Handle(1, 650, F32), (Member(3), Member(5))).total.size_bytes
    2604
    """

    total: Handle
    mean: Handle
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The server goes on without these users; in an asynchronous run it takes this update no more."""

    users: tuple[int, ...]
    phase: str
    update: UpdateId | None = None


@dataclass(frozen=True, slots=True)
class Surplus:
    """The server has the answers that it wants of a stage: these users are to stop, and are not lost."""

    users: tuple[int, ...]
    phase: str


@dataclass(frozen=True, slots=True)
class Abort:
    """No aggregate: the round (or this aggregation) is over."""

    reason: str


class _WithReason:
    __slots__ = ()
    reason: Reason | Discarded
    detail: str

    @property
    def why(self) -> str:
        """The reason with its detail, as the trace has it: a text that begins with the code."""
        return f"{self.reason}: {self.detail}" if self.detail else self.reason.value


@dataclass(frozen=True, slots=True)
class Ignore(_WithReason):
    """A party's message of this kind (or a timer) was thrown away unread. It changes nothing: its update may
    wait in the buffer all the same. `detail` is for readers: the state, or whose share."""

    sender: int
    message: str
    reason: Reason
    subject: Subject = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Discard(_WithReason):
    """An update that waited in the server's buffer is thrown away: no aggregate will have it."""

    update: UpdateId
    reason: Discarded
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A peer's message, or its part in one, was not what an honest peer sends; `sender` is to blame."""

    sender: int
    message: str
    why: str
    subject: Subject = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a round over a graph: |V1| .. |V4|, and CCESA's Theorems 1 and 2. It may be given anew
    when answers come late: the last one counts."""

    survivors: tuple[int, int, int, int]
    reliable: bool
    private: bool


Effect = Send | Timer | Ready | Result | GiveUp | Surplus | Abort | Ignore | Discard | Refuse | Verdict
Effects = list[Effect]


# --- what every protocol is made from -----------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Params:
    """The public parameters of a run, in the papers' letters.

    Attributes:
        d: Length of the update; its weight is one more coordinate (LightSecAgg Remark 3).
        q: Size of the field.
        N: Most users of a round.
        T: Users that may collude.
        D: Users that may be lost.
        U: Answers that recover the sum.
        U_given: U is the scenario's, and not N - D.
        t: Shares that reconstruct a secret; with `majority`, the least of all users' thresholds.
        majority: A user's threshold is a majority of its neighbourhood.
        all_masks: The server expands every pairwise mask of a lost user, needed or not.
        all_answers: The server waits for every survivor's answer, needed or not.
        k: Degree of SecAgg+'s graph.
        p: Connection probability of CCESA's graph.
        clip: Bound of a coordinate's magnitude before quantisation.
        levels: Quantisation levels, c_l.
        K: Updates that a full buffer aggregates.
        staleness_bound: Largest staleness of an aggregated update.
        staleness: Weight of an update by its staleness.
        c_g: Levels of a quantised staleness weight (LightSecAgg App. F).
        timed: After some time fewer than K updates are aggregated, `least` or more.
        least: Updates that such an aggregation needs.
        session: Binds keys and signatures to this run.
        entry: Binds them to the protocol's name in it.
        round: Binds them to one round of it.
        pki: Users' long-term keys, if they have them.
        batches: Users that no sum may separate.

    >>> p = Params(d=650, q=2**32 - 5, N=10, T=3, D=2, U=8, t=4)
    >>> p.sparse, p.threshold(circle=10)
    (False, 4)
    """

    d: int
    q: int
    N: int = 1
    T: int = 0
    D: int = 0
    U: int = 1
    U_given: bool = True
    t: int = 1
    majority: bool = False
    all_masks: bool = False
    all_answers: bool = False
    k: int = 0
    p: float = 1.0
    clip: float = 1.0
    levels: int = 2**16
    K: int = 1
    staleness_bound: int = 0
    staleness: Callable[[int], float] = field(default=lambda tau: 1.0)
    c_g: int = 64
    timed: bool = False
    least: int = 1
    session: bytes = b""
    entry: str = ""
    round: int = 0
    pki: Directory | None = None
    batches: Batches = SINGLES

    @property
    def sparse(self) -> bool:
        """True if users share their secrets with their neighbours in a graph, and know nobody else."""
        return self.p < 1 or 0 < self.k < self.N - 1

    @property
    def points(self) -> range:
        """The users that can have evaluation points, in F_q and in Shamir's field."""
        return range(min(self.q, P) - 1)

    def threshold(self, circle: int) -> int:
        """Return t_i of a user with so many in its closed neighbourhood. A majority of it is the fewest that
        two disjoint sets of neighbours cannot both reach (CCESA Proposition 1)."""
        return max(self.t, circle // 2 + 1) if self.majority else self.t

    def quantise(self, ops: Ops, update: Update, entropy: Entropy, weighted: bool) -> Handle:
        """Return the update as a vector over F_q, weighted before masking (Remark 3)."""
        seed = ops.secret(entropy(f"quantise{name_of(update.id)}"))
        weight = update.weight if weighted else 1
        return ops.quantise(update.delta, weight, self.clip, self.levels, seed, weighted)


def misshapen(handle: Handle, n: int, length: int, dtype: DType) -> str:
    """Return what is wrong with a handle that should be n rows of `length` elements of this type.

    >>> from simfl.dataplane.handles import F32, U32
    >>> misshapen(Handle(1, 5, F32), 1, 4, U32)
    'malformed: 1 x 5 float32 instead of 1 x 4 uint32'
    """
    if (handle.rows, handle.columns, handle.dtype) == (n, length, dtype):
        return ""
    return f"malformed: {handle.rows} x {handle.columns} {handle.dtype} instead of {n} x {length} {dtype}"


def point(user: int) -> int:
    """Return a user's evaluation point in Shamir's code (in an MDS code: mds.points_of): never zero."""
    return user + 1
