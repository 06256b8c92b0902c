"""The two machines of a masking protocol, but for how masks are made and taken off.

A user shares its secrets, uploads under its mask, and helps to take masks off. The server passes keys and
shares on, folds uploads, and asks nobody what a user would refuse: a user left with fewer than t_i of its
circle is given up.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, assert_never

from simfl.crypto.keys import TAG_BYTES
from simfl.dataplane.handles import U8, U32, DType, Handle, HandleList
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols.channels import Channels
from simfl.protocols.client import Client
from simfl.protocols.graphs import Graph
from simfl.protocols.index_views import (
    AllBut,
    Lookup,
    Same,
    Users,
    UsersExcept,
    closed,
    users_among,
    users_of,
)
from simfl.protocols.keyed_messages import (
    Advertise,
    Answer,
    Inbox,
    Invite,
    MaskedUpload,
    Roster,
    Shares,
    Survivors,
    check_inbox,
    check_names,
    check_roster,
    check_survivors,
)
from simfl.protocols.machine import (
    Effects,
    Entropy,
    GiveUp,
    Member,
    Params,
    Refusal,
    Result,
    Send,
    Update,
    misshapen,
)
from simfl.protocols.server import Server, Stage
from simfl.trace.rows import SERVER


class MaskedClient(Client):
    """A user that masks its update, and shares the secrets of the mask.

    Attributes:
        peers: The other users of its roster.
        partners: Peers whose shares the server passed on.
        kept: Partners whose shares were authentic.
        held_shares: Shares of those users in that order, its own last.
        t: Users that must answer.
    """

    initial = "invited"
    table = {
        ("invited", Invite): ("advertise", "keyed"),
        ("keyed", Roster): ("share", "shared"),
        ("shared", Inbox): ("hold_shares", "ready"),
        ("uploaded", Survivors): ("help", "answered"),
        # Two sets of survivors would reveal the mask of a user that is in one of them only.
        ("answered", Survivors): ("refuse", "answered"),
    }
    keys: int
    """Public keys that a user advertises: the first is of its channels."""
    dtype: ClassVar[DType]
    """Bytes of an element of a share."""
    z: Handle
    """Its mask, made in the offline phase and added to one update."""

    def __init__(self, user: int, params: Params, ops: Ops, entropy: Entropy) -> None:
        super().__init__(user, ops, entropy)
        self.params = params

    @property
    @abstractmethod
    def share_bytes(self) -> int:
        """Length of one share before it is sealed."""

    @abstractmethod
    def threshold(self, roster: Roster) -> int:
        """Return how many of a roster must answer. PeerFault if that is too few, or more than it has."""

    @abstractmethod
    def share_secrets(self, roster: Roster) -> Handle:
        """Return a share of this user's secrets for each user of the roster, itself included, row by row."""

    @abstractmethod
    def answer(self, survivors: Survivors) -> Effects:
        """Reveal what recovery needs, once, and never for too few."""

    def advertise(self, message: Invite) -> Effects:
        return [Send(SERVER, self.advertised(self.make_keys()))]

    def make_keys(self) -> list[Handle]:
        """Return the public keys of all secrets that it has from now on: first that of its channels."""
        secret = self.ops.secret(self.entropy("channel key"))
        self.channels = Channels(self.user, secret, self.params, self.ops)
        return [self.ops.public(secret)]

    def advertised(self, keys: list[Handle]) -> Advertise:
        return Advertise(self.ops.join(keys) if len(keys) > 1 else keys[0])

    def check_roster(self, roster: Roster) -> None:
        """Raise PeerFault for a roster that no honest server sends."""
        check_roster(roster, self.user, self.params, self.keys)

    def share(self, roster: Roster) -> Effects:
        ops = self.ops
        self.check_roster(roster)
        self.t = self.threshold(roster)
        index = roster.users.index_of[self.user]
        others = AllBut(len(roster.users), index)
        self.peers = UsersExcept(roster.users, self.user)
        shares = self.share_secrets(roster)
        self.own = ops.pick(shares, [index])
        self.channels.agree(self.peers, ops.pick(roster.publics, others))
        return [Send(SERVER, Shares(self.channels.seal(self.peers, ops.pick(shares, others), 0)))]

    def hold_shares(self, inbox: Inbox) -> Effects:
        check_inbox(inbox, self.peers, self.t, self.share_bytes)
        self.partners = users_of(inbox.senders)
        self.kept, opened, refusals = self.channels.open_all(self.partners, inbox.sealed, self.dtype)
        self.held_shares = self.own if opened is None else self.ops.join([opened, self.own])
        return refusals

    def upload(self, update: Update) -> Effects:
        x = self.params.quantise(self.ops, update, self.entropy, weighted=True)
        masked = self.ops.add(x, self.z)
        del self.z  # it serves once, and is as large as the update
        return [Send(SERVER, MaskedUpload(masked))]

    def help(self, survivors: Survivors) -> Effects:
        return self.answer(self.of_roster(survivors) if self.params.batches.refuse else survivors)

    def of_roster(self, survivors: Survivors) -> Survivors:
        """Return the survivors of its roster, of all who survived. PeerFault if these split a batch."""
        roster, everyone = self.peers.base, survivors.users
        check_names(everyone, self.params.points, "the survivors")
        if self.params.batches.refuse and (split := self.params.batches.split(everyone)):
            raise PeerFault(SERVER, f"{Refusal.SPLIT}: {len(split)} of {len(everyone)} users")
        if everyone.within(roster) or (self.params.batches.refuse and not self.params.sparse):
            return survivors  # strangers too: who makes a batch whole must be known where all are
        return Survivors(users_among(roster, everyone.index_of))

    def check(self, survivors: Survivors) -> Users:
        """Return the survivors. PeerFault if no honest server names them."""
        check_survivors(survivors, closed(self.partners, self.user), self.user, self.t)
        return survivors.users

    @property
    def held_share_owners(self) -> tuple[int, ...]:
        """The users whose secrets it holds shares of, row by row."""
        return (*self.kept, self.user)

    def refuse(self, survivors: Survivors) -> Effects:
        raise PeerFault(SERVER, "asks for a second set of survivors")


class MaskedServer(Server):
    """The server of a round with masked updates.

    Users with one list as circle share one roster, so that a message to all of them is built once.

    Attributes:
        circles: User -> the users, itself included, among whom it shares its secrets.
        t: User -> survivors that its circle must have.
        parts: Batch -> uploads so far and their sum, of batches that are dropped unless complete.
    """

    stages = {
        "advertise": Stage(Advertise, "offline", "send_rosters"),
        "shares": Stage(Shares, "offline", "send_inboxes"),
        "upload": Stage(MaskedUpload, "upload", "ask_survivors"),
        "recovery": Stage(Answer, "recovery", "unmask"),
    }
    keys: int
    """Public keys that a user advertises."""
    after_upload: ClassVar[str] = "recovery"
    """The stage in which survivors answer first."""

    def __init__(self, circles: Graph, t: Mapping[int, int], params: Params, ops: Ops) -> None:
        super().__init__(circles, ops)
        self.circles, self.t, self.params = circles, t, params
        self.batches, self.parts = params.batches, dict[int, tuple[int, Handle]]()
        if self.needed("recovery") < 2:
            raise ValueError("a sum over one user is that user's update: at least 2 must be needed")
        self.rosters: dict[int, Users] = {}
        self.peers: dict[int, UsersExcept] = {}
        self.sum: Handle | None = None
        self.survivors = Users()

    @property
    @abstractmethod
    def share_bytes(self) -> int: ...

    def roster(self, users: Users, t: int, publics: HandleList) -> Roster:
        """Return the roster of a circle, from the keys that each of its users advertised."""
        return Roster(users, self.by_kind(publics))

    @abstractmethod
    def answer_flaw(self, user: int, content: Handle, missing: tuple[int, ...]) -> str:
        """Return what is wrong with an answer, or nothing."""

    @abstractmethod
    def recoverable(self) -> bool:
        """Return True if the answers so far are enough to take the masks off."""

    @abstractmethod
    def unmask(self, got: dict[int, Answer]) -> Effects:
        """Take the masks off the sum; `unmasked` ends the round with it."""

    def by_kind(self, publics: HandleList) -> Handle:
        """Return the keys of all users: the first of each, then the second of each, ..."""
        if self.keys == 1:
            return self.ops.join(list(publics))
        n = len(publics)
        return self.ops.join([self.ops.gather(publics, Same(k, n)) for k in range(self.keys)])

    def enough(self) -> bool:
        # The earlier stages wait for everybody, as who answers there takes part. Here the sum stands: whose
        # answer is not needed any more is not waited for.
        early = self.stage == "recovery" and not self.params.all_answers
        return super().enough() or (early and self.recoverable())

    def start(self) -> Effects:
        return [*self.open_stage("advertise", self.users), *(Send(u, Invite()) for u in self.users)]

    def reject_reason(self, sender: int, message: Advertise | Shares | MaskedUpload | Answer) -> str:
        match message:
            case Advertise(publics):
                return misshapen(publics, self.keys, 32, U8)
            case Shares(sealed):
                return misshapen(sealed, len(self.rosters[sender]) - 1, self.share_bytes + TAG_BYTES, U8)
            case MaskedUpload(masked):
                return misshapen(masked, 1, self.params.d + 1, U32)
            case Answer(content, missing):
                return self.answer_flaw(sender, content, missing)
            case _:
                assert_never(message)

    def keep(self, sender: int, message: Any) -> Any:
        if not isinstance(message, MaskedUpload):
            return message
        part: Handle | None = message.masked
        if self.batches.drop:
            part = self.add_to_batch(sender // self.batches.T, message.masked)
        if part is not None:
            self.sum = part if self.sum is None else self.ops.add(self.sum, part)
        return None  # folded: an upload is never kept

    def add_to_batch(self, batch: int, masked: Handle) -> Handle | None:
        """Add an upload to those of its batch; return their sum once the batch is complete."""
        n, part = self.parts.pop(batch, (0, masked))
        part = self.ops.add(part, masked) if n else masked
        if n + 1 == self.batches.T:
            return part
        self.parts[batch] = n + 1, part
        return None

    def send_rosters(self, got: dict[int, Advertise]) -> Effects:
        """Tell each user the keys of those in its circle who advertised, if these are enough."""
        made: dict[int, Roster] = {}
        sends: list[Send] = []
        for user in got:
            circle, t = self.circles[user], self.t[user]
            if id(circle) not in made:
                users = users_among(circle, got)
                made[id(circle)] = self.roster(users, t, HandleList([got[j].publics for j in users]))
            self.rosters[user] = made[id(circle)].users
            if len(self.rosters[user]) >= t:
                sends.append(Send(user, made[id(circle)]))
        return self.go_on("shares", got, sends)

    def send_inboxes(self, got: dict[int, Shares]) -> Effects:
        """Pass each user what others of its roster sealed for it, if these are enough."""
        made: dict[int, tuple[Users, HandleList]] = {}
        sends: list[Send] = []
        for user in got:
            roster = self.rosters[user]
            if id(roster) not in made:
                users = users_among(roster, got)
                made[id(roster)] = users, HandleList([got[i].sealed for i in users])
            users, sealed = made[id(roster)]
            senders = self.peers[user] = UsersExcept(users, user)
            if len(users) >= self.t[user]:
                row = Lookup(partial(self._row_for, user), senders)
                sends.append(Send(user, Inbox(senders, self.ops.gather(sealed.without(senders.k), row))))
        return self.go_on("upload", got, sends)

    def _row_for(self, user: int, sender: int) -> int:
        """Return which of a sender's sealed shares is for a user: there is none for the sender itself."""
        index_of = self.rosters[sender].index_of
        return index_of[user] - (index_of[user] > index_of[sender])

    def go_on(self, stage: str, got: Iterable[int], messages: list[Send], phase: str = "offline") -> Effects:
        """Open the next stage for those who are sent something, and give the others up."""
        receivers = {message.to for message in messages}
        alone = tuple(user for user in got if user not in receivers)
        give_up: Effects = [GiveUp(alone, phase)] if alone else []
        return [*give_up, *self.open_stage(stage, receivers), *messages]

    def ask_survivors(self, got: dict[int, None]) -> Effects:
        """Tell each survivor those of its roster who are."""
        self.ops.phase("recovery")
        self.survivors = Users(got)
        rosters = {id(roster): roster for roster in map(self.rosters.__getitem__, got)}
        made = {key: self.survivors_for(roster) for key, roster in rosters.items()}
        sends = [Send(user, made[id(self.rosters[user])]) for user in got]
        return [*self.open_stage(self.after_upload, got), *sends]

    def survivors_for(self, roster: Users) -> Survivors:
        """Return the survivors that a roster's users are sent: all of them if users check batches."""
        everyone = self.survivors
        return Survivors(everyone if self.batches.refuse else users_among(roster, everyone.index_of))

    def unmasked(self, total: Handle) -> Effects:
        mean = self.ops.dequantise(total, self.params.levels, None)
        return [Result(total, mean, tuple(map(Member, self.survivors)))]
