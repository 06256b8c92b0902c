"""The round of a committee: each user speaks once, and a few members hold what recovers the sum.

    0. advertise  Each member of the committee sends a public key.
    1. (offline)  User i is sent the members' keys, and derives a channel key with each member.
    2. upload     User i sends a row for each member, sealed, with its own public key, and a masked update if
                  the protocol masks. U_1: users who did, the survivors.
    3. recovery   Member j is sent the rows that survivors sealed for it. It opens them, sums them, and sends
                  the sum. Enough sums recover what the server lacks.

The server draws the m members among the users of the round, for each round anew. A member is a user with one
more part: it trains and uploads too. So a member that is lost or late before its upload is lost as a member,
and it can be lost at `recovery` too, before or after its answer. Members are
asked for their sums only where their own upload is in the sum.

A subclass defines the rows (`protect`), and how sums of them recover the aggregate (`unmask`). The rows
must be additive: the sum of the rows of users is the row of the sum.

Invariant: a member answers for one set of survivors, never for fewer than `least` of them.

Left out: proofs that rows are well-formed, and the choice of the committee by a beacon or a sortition that
the server cannot steer. The server here is honest but curious.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

from simfl.config.blocks import Bits, Count
from simfl.crypto.keys import TAG_BYTES
from simfl.dataplane.handles import U8, U32, DType, Handle, Shape
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols import graph_design
from simfl.protocols.channels import Channels
from simfl.protocols.client import Client
from simfl.protocols.graphs import drawn
from simfl.protocols.index_views import Same, Users, UsersExcept
from simfl.protocols.keyed_messages import (
    Advertise,
    Answer,
    Invite,
    Roster,
    UsersMessage,
    check_names,
    check_roster,
)
from simfl.protocols.machine import (
    SERVER,
    Effects,
    Entropy,
    Ignore,
    Member,
    Message,
    Params,
    Reason,
    Refuse,
    Result,
    Send,
    Update,
    misshapen,
)
from simfl.protocols.protocol import Derived, Problems, Protocol
from simfl.protocols.server import Server, Stage


@dataclass(frozen=True, slots=True)
class CommitteeUpload(Message):
    """A user's one message: rows for the members, and its masked update if there is one."""

    kind, phase, point = "upload", "upload", "upload"
    public: Handle
    """Its public key, 1 x 32 bytes."""
    sealed: Handle
    """A sealed row for each other member, in the order of the roster."""
    masked: Handle | None = None
    """Of `CommitteeServer.masked_shape`; None where the rows hold the update itself."""


@dataclass(frozen=True, slots=True)
class Rows(UsersMessage):
    """The survivors, and the rows that they sealed for the receiving member."""

    kind, phase = "rows", "recovery"
    publics: Handle
    """Public key of each survivor but the receiver, a row each."""
    sealed: Handle
    """Row of each survivor but the receiver."""


class CommitteeClient(Client):
    """A user, which may be a member of the committee too.

    Attributes:
        params: Public parameters.
        committee: Members but itself, in the order of the roster.
        own_row: A member's row of its own update, opened; None for another user.
    """

    initial = "invited"
    table = {
        ("invited", Invite): ("advertise", "keyed"),
        ("invited", Roster): ("join_round", "ready"),
        ("keyed", Roster): ("join_round", "ready"),
        ("uploaded", Rows): ("help", "answered"),
        # The sums over two sets of survivors would differ by one user's row.
        ("answered", Rows): ("refuse", "answered"),
    }
    dtype: ClassVar[DType] = U32
    """Type of an element of a row."""

    def __init__(self, user: int, params: Params, ops: Ops, entropy: Entropy) -> None:
        super().__init__(user, ops, entropy)
        self.params = params
        self.public: Handle | None = None

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """Bytes of a row before it is sealed."""

    @abstractmethod
    def protect(self, x: Handle, members: Sequence[int]) -> tuple[Handle, Handle | None]:
        """Return a row for each of these members, and the masked update; None if the rows are all.

        Args:
            x: The quantised update, 1 x (d + 1) over F_q.
            members: All members, in the order of the roster.
        """

    def make_key(self) -> Handle:
        """Draw its channel key; return the public key, 1 x 32 bytes."""
        secret = self.ops.secret(self.entropy("channel key"))
        self.channels = Channels(self.user, secret, self.params, self.ops)
        return self.ops.public(secret)

    def advertise(self, message: Invite) -> Effects:
        self.public = self.make_key()
        return [Send(SERVER, Advertise(self.public))]

    def join_round(self, roster: Roster) -> Effects:
        """Derive a channel key with each member."""
        self.check_committee(roster)
        if self.public is None:
            self.public = self.make_key()
        self.members = roster.users
        places = [k for k, member in enumerate(self.members) if member != self.user]
        self.committee = Users(self.members[k] for k in places)
        self.channels.agree(self.committee, self.ops.pick(roster.publics, places))
        return []

    def check_committee(self, roster: Roster) -> None:
        """Refuse a roster that is none of a committee, with a PeerFault."""
        check_roster(roster, None, self.params, keys=1)
        if not self.params.U <= len(roster.users) <= self.params.m:
            bounds = f"{self.params.U} to {self.params.m}"
            raise PeerFault(SERVER, f"a committee of {len(roster.users)} members, instead of {bounds}")

    def upload(self, update: Update) -> Effects:
        x, ops = self.params.quantise(self.ops, update, self.entropy, weighted=True), self.ops
        rows, masked = self.protect(x, self.members)
        places = [k for k, member in enumerate(self.members) if member != self.user]
        if len(places) < len(self.members):
            self.own_row = ops.pick(rows, [self.members.index_of[self.user]])
        try:
            # The counter is 0: the key is of this round, and seals once.
            sealed = self.channels.seal(self.committee, ops.pick(rows, places), 0)
        except PeerFault as fault:
            # The roster's fault, found only here, where no message of the table is taken.
            self.state = "refused"
            return [Refuse(fault.user, Roster.kind, fault.why)]
        assert self.public is not None
        return [Send(SERVER, CommitteeUpload(self.public, sealed, masked))]

    def help(self, message: Rows) -> Effects:
        """Open the survivors' rows for this member, and send their sum."""
        survivors, ops = message.users, self.ops
        check_names(survivors, self.params.points, "the survivors")
        if self.user not in self.members.index_of or self.user not in survivors.index_of:
            raise PeerFault(SERVER, "asks for a sum without my own upload")
        if len(survivors) < (least := least_survivors(self.params)):
            raise PeerFault(SERVER, f"{len(survivors)} survivors, below {least}")
        others = UsersExcept(survivors, self.user)
        for handle, length in ((message.publics, 32), (message.sealed, self.row_bytes + TAG_BYTES)):
            if flaw := misshapen(handle, len(others), length, U8):
                raise PeerFault(SERVER, flaw)
        # Members are known by the roster's keys: a second key of one would be a stranger's.
        new = [k for k, user in enumerate(others) if not self.channels.knows(user)]
        if new:
            self.channels.agree([others[k] for k in new], ops.pick(message.publics, new))
        kept, opened, refusals = self.channels.open_all(others, message.sealed, self.dtype)
        if opened is None or len(kept) < len(others):
            # A row is missing, so this sum would be of other users than the sums of other members.
            missing = next(user for user in others if user not in kept)
            return [*refusals, Ignore(SERVER, message.kind, Reason.NO_SHARE, detail=f"user {missing}")]
        return [Send(SERVER, Answer(ops.total(ops.join([opened, self.own_row]))))]

    def refuse(self, message: Rows) -> Effects:
        raise PeerFault(SERVER, "asks for a second sum of rows")


class CommitteeServer(Server):
    """The server of a round with a committee.

    Attributes:
        members: Members of the committee, sorted.
        roster: Members who advertised a key, in the order of the rows.
        uploads: Survivor -> its public key and sealed rows.
        sum: Sum of the masked updates; None without any.
        survivors: Users whose uploads are in the sum.
    """

    stages = {
        "advertise": Stage(Advertise, "offline", "send_roster"),
        "upload": Stage(CommitteeUpload, "upload", "ask_committee"),
        "recovery": Stage(Answer, "recovery", "recover"),
    }

    def __init__(
        self, users: Iterable[int], members: Iterable[int], params: Params, ops: Ops, entropy: Entropy
    ) -> None:
        super().__init__(users, ops)
        self.members, self.params, self.entropy = Users(sorted(members)), params, entropy
        self.uploads: dict[int, tuple[Handle, Handle]] = {}
        self.sum: Handle | None = None
        self.survivors = Users()

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """Bytes of a row before it is sealed."""

    @property
    def masked_shape(self) -> Shape | None:
        """Shape of the masked update in an upload; None if uploads have none."""
        return None

    def add_masked(self, a: Handle, b: Handle) -> Handle:
        """Return the sum of masked updates."""
        return self.ops.add(a, b)

    @abstractmethod
    def unmask(self, rows: Handle, members: tuple[int, ...]) -> Handle:
        """Return the sum over the survivors, 1 x (d + 1) over F_q.

        Args:
            rows: U sums of rows, a row each.
            members: The members that sent them.
        """

    def needed(self, stage: str) -> int:
        return least_survivors(self.params) if stage == "upload" else self.params.U

    def enough(self) -> bool:
        # Any U sums recover, so further ones are not waited for.
        early = self.stage == "recovery" and not self.params.all_answers
        return super().enough() or (early and len(self.got) >= self.params.U)

    def start(self) -> Effects:
        return [*self.open_stage("advertise", self.members), *(Send(u, Invite()) for u in self.members)]

    def reject_reason(self, sender: int, message: Advertise | CommitteeUpload | Answer) -> str:
        if isinstance(message, Advertise):
            return misshapen(message.publics, 1, 32, U8)
        if isinstance(message, Answer):
            return misshapen(message.content, 1, self.row_bytes // U32.itemsize, U32)
        shape, masked = self.masked_shape, message.masked
        if (masked is None) is not (shape is None):
            return f"malformed: {'no' if masked is None else 'a'} masked update"
        flaw = misshapen(masked, *shape) if masked is not None and shape is not None else ""
        others = len(self.roster) - (sender in self.roster.index_of)
        return (
            misshapen(message.public, 1, 32, U8)
            or misshapen(message.sealed, others, self.row_bytes + TAG_BYTES, U8)
            or flaw
        )

    def keep(self, sender: int, message: Any) -> Any:
        if not isinstance(message, CommitteeUpload):
            return message
        self.uploads[sender] = message.public, message.sealed
        if message.masked is not None:
            self.sum = message.masked if self.sum is None else self.add_masked(self.sum, message.masked)
        return None

    def send_roster(self, got: dict[int, Advertise]) -> Effects:
        """Send the members' keys to all users."""
        self.roster = Users(got)
        roster = Roster(self.roster, self.ops.join([message.publics for message in got.values()]))
        # A member whose key is missing was given up with the stage, as a user too.
        users = [user for user in self.users if user in got or user not in self.members.index_of]
        opened = self.open_stage("upload", users)
        return [*opened, *(Send(user, roster) for user in sorted(self.expected))]

    def ask_committee(self, got: dict[int, None]) -> Effects:
        """Send each surviving member the rows that survivors sealed for it."""
        self.ops.phase("recovery")
        self.survivors = Users(got)
        members = [user for user in got if user in self.roster.index_of]
        sends = [Send(member, self._rows_for(member)) for member in members]
        # Opened last, as it may close at once; the messages go out first all the same.
        return [*sends, *self.open_stage("recovery", members)]

    def _rows_for(self, member: int) -> Rows:
        others = UsersExcept(self.survivors, member)
        place = self.roster.index_of[member]
        publics = self.ops.gather([self.uploads[user][0] for user in others], Same(0, len(others)))
        # A member has no row for itself: behind its own place, rows are one lower than members.
        rows = [place - (self.roster.index_of.get(user, place) < place) for user in others]
        sealed = self.ops.gather([self.uploads[user][1] for user in others], rows)
        return Rows(self.survivors, publics, sealed)

    def recover(self, got: dict[int, Answer]) -> Effects:
        """Recover the sum from the members' sums, and end the round."""
        first = dict(islice(got.items(), self.params.U))
        total = self.unmask(self.ops.join([m.content for m in first.values()]), tuple(first))
        mean = self.params.mean(self.ops, total, len(self.survivors), self.entropy)
        return [Result(total, mean, tuple(map(Member, self.survivors)))]


def least_survivors(p: Params) -> int:
    """Return the fewest users whose sum a member helps to recover: N - D, and at least 2."""
    return max(2, p.N - p.D)


class Committee(Protocol):
    """The base of the protocols with a committee.

    Unless given, the committee, t and U follow from sigma and eta (`graph_design.committee`).
    """

    # No loss is planned at `advertise`, which has no message of most users: it is one before training.
    points: ClassVar[tuple[str, ...]] = ("training", "upload", "recovery")
    timers: ClassVar[tuple[str, ...]] = ("advertise", "upload", "recovery")
    member_points: ClassVar[tuple[str, ...]] = ("recovery",)
    model_with: ClassVar[tuple[type[Message], type[Message]]] = (Roster, Roster)
    widest: ClassVar[float] = math.inf
    """By rule, m / (U - t) is at most this: vectors that a user sends for one of its own."""

    committee: Derived[Count] = None
    """Members of the committee, m; by rule unless given."""
    t: Derived[Count] = None
    """Members whose views reveal nothing; by rule unless given."""
    U: Derived[Count] = None
    """Members' answers that recover the sum; by rule unless given."""
    sigma: Bits = 40.0
    """Security: more than t members collude with probability at most 2^-sigma."""
    eta: Bits = 30.0
    """Correctness: fewer than U members are left with probability at most 2^-eta."""

    def members_of(self, users: Sequence[int], p: Params, entropy: Entropy) -> tuple[int, ...]:
        """Return the members of the committee of a round, drawn among its users."""
        return drawn(users, p.m, entropy("committee"))

    def params(self, p: Params) -> Params:
        m, t, U = graph_design.committee(
            p.N, p.T, p.D, self.sigma, self.eta, self.widest, self.committee, self.t, self.U
        )
        return replace(p, m=m, t=t, U=U)

    def derived(self, p: Params) -> dict[str, Any]:
        params = self.params(p)
        values = {"committee": params.m, "t": params.t, "U": params.U}
        return {key: value for key, value in values.items() if getattr(self, key) is None}

    def needed(self, stage: str, p: Params) -> int:
        return least_survivors(p) if stage == "upload" else p.U

    def max_colluders(self, p: Params) -> int | None:
        """Return t: however the committee is drawn, at most t of its members collude then."""
        return p.t

    def problems(self, p: Params) -> Problems:
        params = self.params(p)
        if params.m > p.N:
            yield "committee", f"committee={params.m} must not be above N={p.N}"
        elif not params.t < params.U <= params.m:
            bounds = f"above t={params.t} and at most the committee's {params.m} members"
            yield "U", f"U={params.U} must be {bounds}"

    def failure(self, p: Params) -> graph_design.Failure:
        return graph_design.committee_failure(p.N, p.m, p.t, p.U, p.T, p.D)

    def designs(self, p: Params, sigma: float, eta: float) -> Iterator[dict[str, Any]]:
        yield {"sigma": sigma, "eta": eta}

    def notes(self, p: Params) -> Iterator[str]:
        failure, at_most = self.failure(p), graph_design.at_most
        yield (
            f"a committee of m = {p.m}, of whom U = {p.U} recover and t = {p.t} learn nothing, of N = {p.N} "
            f"(T = {p.T} collude, D = {p.D} are lost): insecure with {at_most(failure.insecure)}, "
            f"not recovered with {at_most(failure.incorrect)}"
        )

    def pairs(self, p: Params, users: int, members: int) -> float:
        return float(p.N * self.params(p).m)

    @classmethod
    def small_settings(cls, users: int, lost: int) -> dict[str, Any]:
        # All users but one, so that a member and another user can be lost.
        return {"committee": users - 1, "t": 1, "U": max(2, users - 1 - lost)}
