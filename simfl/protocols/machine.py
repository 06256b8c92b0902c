"""State machines without a clock: a call goes in, effects come out.

A driver (the loopback, the SimPy engine, a live run) delivers messages, fires timers and applies the effects.
A machine follows its table. A client's table has the messages that it takes in each state, a server's the
messages that each stage collects. Anything else is answered with `Ignore`, so that no driver has to cancel
what it has begun.

Errors are of two kinds. `PeerFault`, a dishonest message of a peer, becomes a `Refuse` effect. `ValueError`,
misuse by the caller, is raised.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from hashlib import blake2b
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import numpy as np

from simfl.crypto import I64
from simfl.crypto.noisy_rounding import Lattice
from simfl.crypto.shamir import P
from simfl.dataplane import audit
from simfl.dataplane.handles import DType, Handle
from simfl.dataplane.ops import Ops, seed_array
from simfl.errors import did_you_mean
from simfl.protocols.batches import SINGLES, Batches
from simfl.protocols.long_term_keys import Directory
from simfl.protocols.noise import DifferentialPrivacy

# `X as X` exports a name again: machines find all their words in this module.
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
"""Returns 32 bytes for a name; a second call with the same name is an error."""

Number = Annotated[int, "number"]
"""A whole number in a message's list that is no user; the items of a `tuple[int, ...]` are users."""

SIGNED_POINTS = ("advertise", "shares", "training", "upload", "consistency", "recovery")
"""Points of a round at which a user can be lost, in their order: all that a scenario can name."""
# Keep in step: `Deadlines` (scenario/world.py) has a key for each stage, `protocol.py` the lists without
# signatures.
SIGNED_STAGES = ("advertise", "shares", "upload", "consistency", "recovery")
"""Stages of a server, each with a deadline: all that a scenario can name."""


def place_of(kind: type) -> str:
    """Return the file and name of a class, with which messages about it begin."""
    # A class of an interactive session has no file.
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or kind.__module__
    return f"{file}: {kind.__name__}"


def check_known(kind: type, what: str, values: Iterable[object], known: Collection[str]) -> None:
    """Check words in a class's attributes when it is defined, so that a misspelt one cannot end a run later.

    Args:
        kind: The class.
        what: Noun for the values, for the message.
        values: The words.
        known: The words that exist.

    Raises:
        TypeError: A word does not exist; the message has file, class, word and the closest one.
    """
    for value in values:
        if value not in known:
            guess = did_you_mean(value, known)
            raise TypeError(f"{place_of(kind)}: {what} {value!r} must be one of {', '.join(known)}{guess}")


INT_BYTES = 4
"""Bytes on the wire of a public integer: a user's number, a weight, a version."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message between parties.

    Attributes:
        kind: Its name on the wire and in traces.
        phase: Phase of a round to which its bytes count.
        point: Point of a round at which its sender can be lost; None for the server's messages.
        relayed: True if it holds shares that users have for each other, which `peers: direct` keeps off the
            server's link. Public keys are no shares.

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
        # `slots=True` makes each class twice, and a bare `super()` would refer to the first of the two.
        super(Message, cls).__init_subclass__()
        # A base class such as `UsersMessage` has no phase yet. `contracts.check_table` wants one where a
        # message is used.
        check_known(cls, "phase", {getattr(cls, "phase", PHASES[0])}, PHASES)
        check_known(cls, "point", {cls.point} - {None}, SIGNED_POINTS)

    @property
    def size_bytes(self) -> int:
        """Bytes on the wire: the sum over its fields.

        An array has its own size, and a public number 4 bytes. An update has 4 bytes, for its cycle, since
        its user is the message's sender; in a list it has 8. The cost of the RPC layer is
        `network.overhead_s`.
        """
        kind: Any = type(self)
        return sum([_bytes_of(getattr(self, name)) for name in _field_names(kind)])

    @property
    def subject(self) -> Subject:
        """The update or the recovery that it belongs to; None in a synchronous round."""
        return None


@cache
def _field_names(message: Any) -> tuple[str, ...]:
    return tuple(part.name for part in fields(message))


# A tuple, since `isinstance` would build a union anew for each field.
_NUMBERS = (int, UpdateId, RecoveryId)


def _bytes_of(value: Any) -> int:
    if isinstance(value, Handle):
        return value.size_bytes
    # An absent part of a message is not sent.
    if value is None:
        return 0
    if isinstance(value, _NUMBERS):
        return INT_BYTES
    # A list has items of one type, so the first one decides. User and cycle are two numbers.
    of_updates = len(value) > 0 and isinstance(value[0], UpdateId)
    return (INT_BYTES + INT_BYTES * of_updates) * len(value)


@dataclass(frozen=True, slots=True)
class Update:
    """A user's local update.

    Attributes:
        delta: The change of the model's parameters, 1 x d float32.
        weight: Training samples behind it.
        id: Its user and cycle in an asynchronous run; None in a round.
        version: t_i, the version of the model that it was trained from; 0 in a round.

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
    """An outgoing message.

    Attributes:
        to: Number of the receiving user, or `SERVER`.
        message: The message.

    >>> Send(SERVER, Message()).to
    -1
    """

    to: int
    message: Message


@dataclass(frozen=True, slots=True)
class Timer:
    """Call `expire` with this timer once the scenario's deadline `name` has passed."""

    name: str
    """Key of `deadlines`; `KEY grace` for the second wait of a quorum, `buffer` for `buffer.every_s`."""
    phase: str
    """Phase of the round to which the wait counts."""
    subject: Subject = None
    """The update or recovery that is waited for, in an asynchronous run."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The offline phase is done: the machine waits for `submit` alone."""

    update: UpdateId | None = None
    """The update whose cycle this is, in an asynchronous run."""


@dataclass(frozen=True, slots=True)
class Member:
    """One update in an aggregate.

    Attributes:
        user: Its user.
        update: Its user and cycle, in an asynchronous run.
        factor: Integer or real weight by which the aggregate counts it.
        staleness: Versions of the model between its training and the aggregate.

    >>> tuple(map(Member, (3, 5)))[1].user
    5
    """

    user: int
    update: UpdateId | None = None
    factor: float = 1
    staleness: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """One aggregate.

    Attributes:
        total: The sum over `members`: 1 x (d + 1) or 1 x d over F_q, or 1 x d float64 without a field.
        mean: The mean update g, 1 x d float64, that the sum stands for.
        members: The aggregated updates, in the order of summation.

    >>> from simfl.dataplane.handles import F32, U32
    >>> Result(Handle(1, 651, U32), Handle(1, 650, F32), (Member(3), Member(5))).total.size_bytes
    2604
    """

    total: Handle
    mean: Handle
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The server continues without these users; in an asynchronous run, without this update."""

    users: tuple[int, ...]
    """Users who are given up."""
    phase: str
    """Phase in which they were missed."""
    update: UpdateId | None = None
    """The update that will no longer be accepted, in an asynchronous run."""


@dataclass(frozen=True, slots=True)
class Surplus:
    """The server has enough answers of a stage: these users stop, and do not count as lost."""

    users: tuple[int, ...]
    """Users who are not needed."""
    phase: str
    """Phase of the stage."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The round, or this aggregation, ends without an aggregate."""

    reason: str
    """Stage and cause, for readers."""


class _WithReason:
    """An effect with a code and a text for readers."""

    __slots__ = ()
    reason: Reason | Discarded
    """Code of the reason."""
    detail: str
    """Its detail; empty without one."""

    @property
    def why(self) -> str:
        """The text in the trace: the code of the reason, then the detail."""
        return f"{self.reason}: {self.detail}" if self.detail else self.reason.value


@dataclass(frozen=True, slots=True)
class Ignore(_WithReason):
    """An untimely message, or a timer, was dropped unread. It changes nothing: an update of its sender may
    wait in the buffer all the same."""

    sender: int
    """Party that sent it; `SERVER` for a timer."""
    message: str
    """Kind of the message, or `timer`."""
    reason: Reason
    """Code of the reason."""
    subject: Subject = None
    """Update or recovery that it belongs to, in an asynchronous run."""
    detail: str = ""
    """For readers: the state, or the user whose share it is."""


@dataclass(frozen=True, slots=True)
class Discard(_WithReason):
    """An update in the server's buffer is dropped: no aggregate will have it."""

    update: UpdateId
    """Its user and cycle."""
    reason: Discarded
    """Code of the reason."""
    detail: str = ""
    """For readers."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A message, or a peer's part of one, that no honest peer sends."""

    sender: int
    """Party at fault."""
    message: str
    """Kind of the message, or `share` for a part of one."""
    why: str
    """Reason, for readers; in traces it begins with the code, if there is one."""
    subject: Subject = None
    """Update or recovery that it belongs to, in an asynchronous run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """CCESA's judgement of a round over a graph. Late answers may change it: the last one counts."""

    survivors: tuple[int, int, int, int]
    """|V1|, |V2|, |V3| and |V4|."""
    reliable: bool
    """Theorem 1: the server gets the sum over V3."""
    private: bool
    """Theorem 2: the server gets no sum over a proper part of V3."""


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
        U_given: True if the scenario sets U, and it is not N - D.
        t: Shares that reconstruct a secret; with `majority`, the least of all users' thresholds.
        majority: A user's threshold is a majority of its neighbourhood.
        all_masks: The server expands every pairwise mask of a lost user, needed or not.
        all_answers: The server waits for every survivor's answer, needed or not.
        k: Degree of SecAgg+'s graph.
        p: Connection probability of CCESA's graph.
        m: Members of a committee.
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
        dp: Noise of differential privacy, in place of `clip` and `levels`; None without.

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
    m: int = 0
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
    dp: DifferentialPrivacy | None = None

    @property
    def lattice(self) -> Lattice | None:
        """The numbers of this round's noisy rounding; None without differential privacy."""
        if self.dp is None:
            return None
        # Public, and another one each round; lengths keep the names apart.
        seed = b"%d %d %b" % (self.round, len(self.session), self.session)
        return self.dp.lattice(self.d, self.N, blake2b(b"rotation " + seed, digest_size=32).digest())

    @property
    def repaired(self) -> int:
        """Parts of a user's noise that are removed unless users are lost; 0 without repair."""
        return 0 if self.dp is None else self.dp.dropout.tolerated(self.N)

    def removed(self, survivors: int) -> int:
        """Return the parts of each survivor's noise that repair removes, the last ones."""
        return max(0, self.repaired - max(0, self.N - survivors))

    @property
    def width(self) -> int:
        """Elements of an update over F_q, its weight included: more than d + 1 if it is rotated."""
        return (self.d if self.lattice is None else self.lattice.length) + 1

    @property
    def sparse(self) -> bool:
        """True if users share their secrets with their neighbours in a sparse graph alone."""
        return self.p < 1 or 0 < self.k < self.N - 1

    @property
    def points(self) -> range:
        """The users that can have evaluation points, both in F_q and in Shamir's field."""
        # User u has the point u + 1 < p in Shamir's field. In F_q it has that one too, or one of q - 1
        # powers.
        return range(min(self.q, P) - 1)

    def threshold(self, circle: int) -> int:
        """Return t_i of a user with `circle` users in its closed neighbourhood. A majority is the least
        number that two disjoint sets of neighbours cannot both reach (CCESA Proposition 1)."""
        # Never below t, which is at least 2: a neighbourhood of one user would be a majority of itself.
        return max(self.t, circle // 2 + 1) if self.majority else self.t

    def quantise(
        self,
        ops: Ops,
        update: Update,
        entropy: Entropy,
        weighted: bool,
        drawn: Mapping[str, Handle] = MappingProxyType({}),
    ) -> Handle:
        """Return the update over F_q, weighted before masking (LightSecAgg Remark 3).

        Args:
            ops: Operations.
            update: The update, 1 x d.
            entropy: Source of the seeds of stochastic rounding and noise.
            weighted: Multiply by the samples, and append their number as one more coordinate; under
                differential privacy each update weighs 1.
            drawn: Seeds that were drawn before, by name.

        Returns:
            1 x `width` over F_q, or one column less without weights.
        """
        names = self.seed_names(update.id)
        seeds = [drawn[name] if name in drawn else ops.secret(entropy(name)) for name in names]
        if (how := self.lattice) is not None:
            return ops.perturb(update.delta, ops.join(seeds), how, weighted)
        weight = update.weight if weighted else 1
        return ops.quantise(update.delta, weight, self.clip, self.levels, seeds[0], weighted)

    def seed_names(self, update: UpdateId | None) -> list[str]:
        """Return the names of the seeds in a user's entropy: of its rounding, then of each part of noise."""
        # A name for each update: in an asynchronous run one source serves all cycles of a user.
        parts = 0 if self.lattice is None else len(self.lattice.variances)
        return [f"{use}{name_of(update)}" for use in ("quantise", *(f"dp noise {k}" for k in range(parts)))]

    def contribution(
        self, peek: Entropy, update: UpdateId | None, weight: int, survivors: int
    ) -> tuple[Callable[..., I64], tuple[Any, ...]]:
        """Return the kernel that adds an update to the audit's plain sum, and its further arguments.

        Args:
            peek: A user's source of seeds, which are read and not drawn.
            update: The update's id.
            weight: Its weight; unused under differential privacy, where each update weighs 1.
            survivors: Updates in the sum: with repair, more losses leave more parts of each one's noise.
        """
        seeds = np.concatenate([seed_array(peek(name)) for name in self.seed_names(update)])
        if (how := self.lattice) is not None:
            left = how.variances[: 1 + self.N - survivors]
            return audit.add_noisy_levels, (seeds[: 1 + len(left)], replace(how, variances=left))
        return audit.add_levels, (weight, seeds, self.clip, self.levels)

    def mean(self, ops: Ops, total: Handle, users: int, entropy: Entropy) -> Handle:
        """Return the mean update of a sum over F_q, 1 x d float64.

        Args:
            ops: Operations.
            total: The sum, 1 x `width`, or without weights.
            users: Updates in it.
            entropy: The server's, for the noise that it adds to the sum in a central mechanism.
        """
        if (how := self.lattice) is None:
            return ops.dequantise(total, self.levels, None)
        if how.server_variance:
            seed = ops.secret(entropy("dp noise"))
            total = ops.add_noise(total, seed, how.law, (how.server_variance,), 1, how.length)
        return ops.mean_of(total, how, users)


def misshapen(handle: Handle, n: int, length: int, dtype: DType) -> str:
    """Return the fault of a handle's shape or type; empty if it is right.

    Args:
        handle: The handle, of a message.
        n: Rows that it must have.
        length: Elements that a row must have.
        dtype: Type that an element must have.

    >>> from simfl.dataplane.handles import F32, U32
    >>> misshapen(Handle(1, 5, F32), 1, 4, U32)
    'malformed: 1 x 5 float32 instead of 1 x 4 uint32'
    """
    if (handle.rows, handle.columns, handle.dtype) == (n, length, dtype):
        return ""
    return f"malformed: {handle.rows} x {handle.columns} {handle.dtype} instead of {n} x {length} {dtype}"


def point(user: int) -> int:
    """Return a user's evaluation point in Shamir's code (in an MDS code: mds.points_of). It is never zero,
    where the polynomial has the secret."""
    return user + 1
