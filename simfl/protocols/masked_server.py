"""The server of a masking protocol: keys and shares first, uploads folded, masks taken off at the end.

It asks nobody what a user would refuse: who is left with fewer than t_i of its circle is given up.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, assert_never

from simfl.dataplane.handles import U8, U32, Handle, HandleList
from simfl.dataplane.ops import Ops
from simfl.protocols.graphs import Graph
from simfl.protocols.index_views import Lookup, Others, Users, users_among
from simfl.protocols.keyed_messages import (
    TAG_BYTES,
    Advertise,
    Answer,
    Inbox,
    Invite,
    MaskedUpload,
    Roster,
    Shares,
    Survivors,
)
from simfl.protocols.machine import Effects, GiveUp, Member, Params, Result, Send, misshapen
from simfl.protocols.server import Server, Stage


class MaskedServer(Server):
    """The part of a masking protocol's server that all have.

    circles: user -> the users, itself included, among whom it shares; t: user -> how many of these must be
    left. Users who share one list as circle share one roster: what all are told is put together once.
    """

    stages = {
        "advertise": Stage(Advertise, "offline", "send_rosters"),
        "shares": Stage(Shares, "offline", "send_inboxes"),
        "upload": Stage(MaskedUpload, "upload", "ask_survivors"),
        "recovery": Stage(Answer, "recovery", "unmask"),
    }
    keys: ClassVar[int]
    """Public keys that a user advertises."""

    def __init__(self, circles: Graph, t: Mapping[int, int], params: Params, ops: Ops) -> None:
        super().__init__(circles, ops)
        self.circles, self.t, self.params = circles, t, params
        if self.needed("recovery") < 2:
            raise ValueError("a sum over one user is that user's update: at least 2 must be needed")
        self.rosters: dict[int, Users] = {}
        self.peers: dict[int, Others] = {}
        self.sum: Handle | None = None
        self.survivors: tuple[int, ...] = ()

    @property
    @abstractmethod
    def share_bytes(self) -> int:
        """Length of one share before it is sealed."""

    @abstractmethod
    def roster(self, users: Users, t: int, publics: HandleList) -> Roster:
        """Return the roster of a circle, from the keys that each of its users advertised."""

    @abstractmethod
    def answer_flaw(self, user: int, content: Handle, missing: tuple[int, ...]) -> str:
        """Return what is wrong with an answer, or nothing."""

    @abstractmethod
    def unmask(self, got: dict[int, Answer]) -> Effects:
        """Take the masks off the sum; `unmasked` ends the round with it."""

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
        self.sum = message.masked if self.sum is None else self.ops.add(self.sum, message.masked)
        return None  # folded: an upload is never kept

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
        return self._go_on("shares", got, sends)

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
            senders = self.peers[user] = Others(users, user)
            if len(users) >= self.t[user]:
                row = Lookup(partial(self._row_for, user), senders)
                sends.append(Send(user, Inbox(senders, self.ops.gather(sealed.without(senders.k), row))))
        return self._go_on("upload", got, sends)

    def _row_for(self, user: int, sender: int) -> int:
        """Return which of a sender's sealed shares is for a user: there is none for the sender itself."""
        place = self.rosters[sender].place
        row = place[user]
        return row - (row > place[sender])

    def _go_on(self, stage: str, got: Iterable[int], messages: list[Send]) -> Effects:
        """Open the next stage for those who are sent something, and give the others up."""
        receivers = {message.to for message in messages}
        alone = tuple(user for user in got if user not in receivers)
        give_up: Effects = [GiveUp(alone, "offline")] if alone else []
        return [*give_up, *self.open_stage(stage, receivers), *messages]

    def ask_survivors(self, got: dict[int, None]) -> Effects:
        """Tell each survivor those of its roster who are: it must hear of no others."""
        self.ops.phase("recovery")
        self.survivors = tuple(got)
        made: dict[int, Survivors] = {}
        effects: Effects = []
        for user in got:
            roster = self.rosters[user]
            if id(roster) not in made:
                made[id(roster)] = Survivors(users_among(roster, got))
            effects.append(Send(user, made[id(roster)]))
        return [*self.open_stage("recovery", got), *effects]

    def unmasked(self, total: Handle) -> Effects:
        """Return the result: the sum without its masks, and the mean update."""
        mean = self.ops.dequantise(total, self.params.levels, None)
        return [Result(total, mean, tuple(map(Member, self.survivors)))]
