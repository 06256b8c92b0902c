"""A user of LightSecAgg over a buffer; `lightsecagg_async` says how the protocol goes."""

from __future__ import annotations

import math
from bisect import bisect
from collections import defaultdict
from functools import lru_cache
from itertools import filterfalse, repeat
from operator import gt

from simfl.crypto import mds
from simfl.crypto.keys import nonce
from simfl.dataplane.handles import U8, U32, Handle
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols.buffered_server import Upload, stamp
from simfl.protocols.channels import Channels
from simfl.protocols.index_views import AllBut
from simfl.protocols.keyed_messages import TAG_BYTES, Advertise, Invite, Roster, check_roster, coded_bytes
from simfl.protocols.machine import (
    SERVER,
    Effects,
    Entropy,
    Ignore,
    Message,
    Params,
    Ready,
    Refuse,
    Send,
    Update,
    misshapen,
)
from simfl.protocols.stamped import MaskInbox, MaskShares, Recover, Start, SumOfShares

NEVER = math.inf
"""The last cycle of whom this user shares no key with."""


class LightSecAggAsyncClient:
    """A user for the whole run: makes masks, holds others' coded shares, answers recoveries."""

    table = {
        "invite": "advertise",
        "roster": "meet",
        "begin": "begin",
        "inbox": "hold",
        "recover": "answer",
    }

    def __init__(self, user: int, params: Params, ops: Ops, entropy: Entropy) -> None:
        self.user = user
        self.params = params
        self.ops = ops
        self.entropy = entropy
        self.share_bytes = coded_bytes(params, params.d) + TAG_BYTES
        self.channels: Channels | None = None
        self.peers: list[int] = []
        self.circle: tuple[int, ...] = ()  # peers and itself: one order for all who know the same
        self.mask: tuple[str, Handle] | None = None
        self.held: dict[str, tuple[Handle, int]] = {}  # rows, and which of them
        self.made: defaultdict[int, list[str]] = defaultdict(list)  # masks by t_i, also those answered for
        self.latest: dict[int, int] = {}
        self.refused: set[str] = set()  # cycles that did not begin: there is no mask for their updates
        self.asked = -1

    def receive(self, sender: int, message: Message) -> Effects:
        """Take a message from the server."""
        method = self.table.get(message.kind)
        if method is None or (self.channels is None) != (message.kind == "invite"):
            return [Ignore(sender, message.kind, "out of phase", message.about)]
        self.ops.phase(message.phase)
        try:
            effects: Effects = getattr(self, method)(message)
            return effects
        except PeerFault as fault:
            if isinstance(message, Start):
                self.refused.add(message.about)
            return [Refuse(fault.user, message.kind, fault.why, message.about)]

    def advertise(self, message: Invite) -> Effects:
        secret = self.ops.secret(self.entropy("channel key"))
        self.channels = Channels(self.user, secret, self.params, self.ops)
        return [Send(SERVER, Advertise(self.ops.public(secret)))]

    def meet(self, roster: Roster) -> Effects:
        """Derive the keys of users that enrolled; who comes later has a roster of its own."""
        assert self.channels is not None
        check_roster(roster, None, self.params, keys=1)
        unknown = [k for k, u in enumerate(roster.users) if u != self.user and not self.channels.knows(u)]
        if unknown:
            new = [roster.users[k] for k in unknown]
            self.channels.agree(new, self.ops.pick(roster.publics, unknown))
            self.peers = sorted([*self.peers, *new])
            k = bisect(self.peers, self.user)
            self.circle = (*self.peers[:k], self.user, *self.peers[k:])
            self.latest.update(dict.fromkeys(new, -1))
        return []

    def begin(self, message: Start) -> Effects:
        """Make the mask z_i^(t_i), code it among all, and send the sealed shares (eq. 28)."""
        ops, p = self.ops, self.params
        owner, cycle = _stamp(message.name)
        if owner != self.user or cycle <= self.latest.get(owner, -1):
            raise PeerFault(SERVER, f"{message.name} is not a new cycle of mine")
        if len(self.peers) + 1 < p.U:
            raise PeerFault(SERVER, f"a cycle with {len(self.peers) + 1} users enrolled, below U={p.U}")
        assert self.channels is not None
        self.latest[owner] = cycle
        z = ops.prg(ops.secret(self.entropy(f"mask {message.name}")), p.d)
        noise = ops.secret(self.entropy(f"noise {message.name}"))
        # One order of the points for all, so that users who know the same share one matrix.
        coded = ops.encode(z, noise, mds.points_of(self.circle, p.q), p.U, p.T)
        mine = self.circle.index(self.user)
        others = AllBut(len(self.circle), mine)
        self.mask = (message.name, z)
        self.held[message.name] = (ops.pick(coded, [mine]), 0)
        self.made[message.version].append(message.name)
        sealed = self.channels.seal(self.peers, ops.pick(coded, others), cycle)
        shares = MaskShares(message.name, message.version, tuple(self.peers), sealed)
        return [Send(SERVER, shares), Ready(message.name)]

    def submit(self, update: Update) -> Effects:
        """Mask the update (eq. 32) with the mask of its own cycle, which is used up by that."""
        if update.about in self.refused:
            return [Ignore(self.user, "update", "its cycle was refused", update.about)]
        if self.mask is None or self.mask[0] != update.about:
            raise ValueError(f"user {self.user}: no mask for update {update.about}")
        self.ops.phase("upload")
        z, self.mask = self.mask[1], None
        x = self.params.quantise(self.ops, update, self.entropy, weighted=False)
        return [Send(SERVER, Upload(update.about, update.version, self.ops.add(x, z)))]

    def hold(self, inbox: MaskInbox) -> Effects:
        """Keep others' coded shares until a recovery asks for them or they are too old.

        A sender's cycles only grow, so a share that was answered for or forgotten never comes back.
        """
        assert self.channels is not None
        users, cycles, different = _stamps(inbox.names)
        if different < len(users) or len(inbox.versions) != len(users):
            raise PeerFault(SERVER, "the inbox names a user twice, or a mask without its version")
        effects: Effects = []
        new = self._new(users, cycles)
        if len(new) < len(users):
            why = "a second one, or a stranger's"
            old = [k for k in range(len(users)) if k not in new]
            effects += [Ignore(users[k], "share", why, inbox.names[k]) for k in old]
        flaw = misshapen(inbox.sealed, len(users), self.share_bytes, U8) if new else ""
        if flaw:
            raise PeerFault(SERVER, flaw)
        while new:
            mine = inbox if len(new) == len(users) else _only(inbox, new, self.ops)
            whose, of, _ = _stamps(mine.names)
            try:
                rows = self.channels.open(whose, mine.sealed, of, U32)
            except PeerFault as fault:
                forged = new.pop(whose.index(fault.user))
                effects.append(Refuse(fault.user, "share", fault.why, inbox.names[forged]))
            else:
                self.latest.update(zip(whose, of, strict=True))
                self.held.update(zip(mine.names, zip(repeat(rows), range(rows.n), strict=False), strict=True))
                for name, version in zip(mine.names, mine.versions, strict=True):
                    self.made[version].append(name)
                break
        return effects

    def _new(self, users: tuple[int, ...], cycles: tuple[int, ...]) -> list[int]:
        """Which of these masks a peer made that none was heard of before, or only earlier ones."""
        known = list(map(self.latest.get, users, repeat(NEVER)))
        if self.user in users:
            known[users.index(self.user)] = NEVER
        if all(map(gt, cycles, known)):
            return list(range(len(users)))
        return [k for k, (cycle, last) in enumerate(zip(cycles, known, strict=True)) if cycle > last]

    def _forget(self, oldest: int) -> None:
        """Shares of masks that no recovery asks for any more."""
        for version in [version for version in self.made if version < oldest]:
            for name in self.made.pop(version):
                self.held.pop(name, None)

    def answer(self, request: Recover) -> Effects:
        """Sum the coded shares by the weights of eq. 34, once for each mask."""
        p, masks = self.params, request.masks
        if request.number <= self.asked:
            return [Ignore(SERVER, "recover", "came before", request.about)]
        _, _, different = _stamps(masks)
        if different < len(masks) or len(masks) < p.K:
            raise PeerFault(SERVER, f"{len(masks)} masks of {different} users: doubled, or below K={p.K}")
        if len(masks) != len(request.weights):
            raise PeerFault(SERVER, f"{len(request.weights)} weights for {len(masks)} masks")
        if not 1 <= min(request.weights) <= max(request.weights) <= p.c_g:
            raise PeerFault(SERVER, f"a weight outside 1 .. c_g={p.c_g}")
        for name in filterfalse(self.held.__contains__, masks):
            owner, cycle = _stamp(name)
            if cycle <= self.latest.get(owner, -1):
                raise PeerFault(SERVER, f"mask {name} was answered for before, or is too old")
        self.asked = request.number
        self._forget(request.version - p.staleness_bound)
        missing = list(filterfalse(self.held.__contains__, masks))
        if missing:
            return [Ignore(SERVER, "recover", f"no share of mask {missing[0]}", request.about)]
        rows, at = zip(*map(self.held.pop, masks), strict=True)
        content = self.ops.weighted_sum(self.ops.gather(rows, at), request.weights)
        return [Send(SERVER, SumOfShares(request.number, content))]


def _only(inbox: MaskInbox, rows: list[int], ops: Ops) -> MaskInbox:
    """These rows of an inbox."""
    names = tuple(inbox.names[k] for k in rows)
    return MaskInbox(names, tuple(inbox.versions[k] for k in rows), ops.pick(inbox.sealed, rows))


@lru_cache(maxsize=64)  # every user is sent the same names
def _stamps(names: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The users and the cycles of names that the server sent, and how many users they are."""
    stamps = [_stamp(name) for name in names]
    users = tuple(user for user, _ in stamps)
    return users, tuple(cycle for _, cycle in stamps), len(set(users))


def _stamp(name: str) -> tuple[int, int]:
    """(user, cycle) of a name that the server sent; its shares are sealed under that nonce."""
    try:
        user, cycle = stamp(name)
        nonce(user, cycle)
        return user, cycle
    except ValueError as error:
        raise PeerFault(SERVER, str(error)) from None
