"""A user of a masking protocol: shares its secrets, uploads under its mask, and helps to take masks off."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from simfl.dataplane.handles import Handle
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols.channels import Channels
from simfl.protocols.client import Client
from simfl.protocols.index_views import AllBut, Others, Users, closed, users_of
from simfl.protocols.keyed_messages import (
    Advertise,
    Inbox,
    Invite,
    MaskedUpload,
    Roster,
    Shares,
    Survivors,
    check_inbox,
    check_roster,
    check_survivors,
)
from simfl.protocols.machine import SERVER, Effects, Entropy, Params, Send, Update


class MaskedClient(Client):
    """The part of a masking protocol's user that all have.

    peers: the others of its roster; partners: those of them whose shares the server passed on; kept: those
    whose shares were authentic; held: their shares in that order, its own last; t: how many must answer.
    """

    initial = "invited"
    table = {
        ("invited", Invite): ("advertise", "keyed"),
        ("keyed", Roster): ("share", "shared"),
        ("shared", Inbox): ("hold_shares", "ready"),
        ("uploaded", Survivors): ("answer", "answered"),
        # Two sets of survivors would reveal the mask of a user that is in one of them only.
        ("answered", Survivors): ("refuse", "answered"),
    }
    keys: ClassVar[int]
    """Public keys that a user advertises: the first is of its channels."""
    width: ClassVar[int]
    """Bytes of an element of a share."""

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
    def mask(self, x: Handle) -> Handle:
        """Return a quantised update under this user's mask."""

    @abstractmethod
    def answer(self, survivors: Survivors) -> Effects:
        """Reveal what recovery needs, once, and never for too few."""

    def advertise(self, message: Invite) -> Effects:
        secret = self.ops.secret(self.entropy("channel key"))
        self.channels = Channels(self.user, secret, self.params, self.ops)
        return [Send(SERVER, Advertise(self.ops.public(secret)))]

    def share(self, roster: Roster) -> Effects:
        """Agree on a key with each other user, and seal its share of this user's secrets with it."""
        ops = self.ops
        check_roster(roster, self.user, self.params, self.keys)
        self.t = self.threshold(roster)
        place = roster.users.place[self.user]
        others = AllBut(len(roster.users), place)
        self.peers = Others(roster.users, self.user)
        shares = self.share_secrets(roster)
        self.own = ops.pick(shares, [place])
        self.channels.agree(self.peers, ops.pick(roster.publics, others))
        return [Send(SERVER, Shares(self.channels.seal(self.peers, ops.pick(shares, others), 0)))]

    def hold_shares(self, inbox: Inbox) -> Effects:
        """Keep the others' shares, but for those that are not authentic."""
        check_inbox(inbox, self.peers, self.t, self.share_bytes)
        self.partners = users_of(inbox.senders)
        self.kept, opened, refusals = self.channels.open_all(self.partners, inbox.sealed, self.width)
        self.held = self.own if opened is None else self.ops.join([opened, self.own])
        return refusals

    def upload(self, update: Update) -> Effects:
        x = self.params.quantise(self.ops, update, self.entropy, weighted=True)
        return [Send(SERVER, MaskedUpload(self.mask(x)))]

    def check(self, survivors: Survivors) -> Users:
        """Return the survivors. PeerFault if no honest server names them."""
        check_survivors(survivors, closed(self.partners, self.user), self.user, self.t)
        return survivors.users

    @property
    def holders(self) -> tuple[int, ...]:
        """The users whose shares it holds, row by row."""
        return (*self.kept, self.user)

    def refuse(self, survivors: Survivors) -> Effects:
        raise PeerFault(SERVER, "asks for a second set of survivors")
