"""The user and the messages of LightSecAgg over a buffer; `lightsecagg_async` has the protocol's rounds."""

import math
from bisect import bisect
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import filterfalse, repeat
from operator import gt

from simfl.crypto import mds
from simfl.crypto.keys import TAG_BYTES, nonce
from simfl.dataplane.handles import U8, U32, Handle
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols.buffered_server import UpdateMessage, Upload
from simfl.protocols.channels import Channels
from simfl.protocols.client import BufferedClient
from simfl.protocols.index_views import AllBut
from simfl.protocols.keyed_messages import Advertise, Invite, Roster, check_roster, coded_bytes
from simfl.protocols.machine import (
    Effects,
    Entropy,
    Ignore,
    Message,
    Number,
    Params,
    Ready,
    Refuse,
    Send,
    Update,
    misshapen,
)
from simfl.trace.codes import Reason, RecoveryId, Subject, UpdateId, name_of
from simfl.trace.rows import SERVER

AFTER_ALL_CYCLES = math.inf
"""The last cycle, as it were, of a user with whom no key is shared: none of its masks is new."""


@dataclass(frozen=True, slots=True)
class Start(UpdateMessage):
    kind, phase = "begin", "offline"


@dataclass(frozen=True, slots=True)
class MaskShares(UpdateMessage):
    """The sealed coded shares of one mask (eq. 28): row k is for user to[k]."""

    kind, phase, point, relayed = "shares", "offline", "shares", True
    to: tuple[int, ...]
    sealed: Handle


@dataclass(frozen=True, slots=True)
class MaskInbox(Message):
    """The receiver's shares of others' masks: row k is of the mask of masks[k], made on versions[k]."""

    kind, phase, relayed = "inbox", "offline", True
    masks: tuple[UpdateId, ...]
    versions: tuple[Number, ...]
    sealed: Handle


@dataclass(frozen=True, slots=True)
class RecoveryMessage(Message):
    recovery: RecoveryId

    @property
    def subject(self) -> Subject:
        return self.recovery


@dataclass(frozen=True, slots=True)
class Recover(RecoveryMessage):
    """The server asks for the weighted sum of these masks' coded shares."""

    kind, phase = "recover", "recovery"
    version: int
    masks: tuple[UpdateId, ...]
    weights: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class SumOfShares(RecoveryMessage):
    kind, phase, point = "answer", "recovery", "recovery"
    content: Handle


class LightSecAggAsyncClient(BufferedClient):
    initial = "invited"
    table = {
        ("invited", Invite): ("advertise", "enrolled"),
        ("enrolled", Roster): ("meet", "enrolled"),
        ("enrolled", Start): ("begin", "enrolled"),
        ("enrolled", MaskInbox): ("hold", "enrolled"),
        ("enrolled", Recover): ("answer", "enrolled"),
    }

    def __init__(self, user: int, params: Params, ops: Ops, entropy: Entropy) -> None:
        super().__init__(user, params, ops, entropy)
        self.share_bytes = coded_bytes(params, params.d) + TAG_BYTES
        self.channels: Channels | None = None
        self.peers: list[int] = []
        self.circle: tuple[int, ...] = ()  # peers and itself: one order for all who know the same
        self.mask: tuple[UpdateId, Handle] | None = None
        self.held_shares: dict[UpdateId, tuple[Handle, int]] = {}  # rows, and which of them
        self.made: defaultdict[int, list[UpdateId]] = defaultdict(list)  # by t_i, also those answered for
        self.latest: dict[int, int] = {}
        self.refused: set[UpdateId] = set()  # cycles that did not begin: there is no mask for their updates
        self.asked = -1  # the number of the last recovery

    def advertise(self, message: Invite) -> Effects:
        secret = self.ops.secret(self.entropy("channel key"))
        self.channels = Channels(self.user, secret, self.params, self.ops)
        return [Send(SERVER, Advertise(self.ops.public(secret)))]

    def meet(self, roster: Roster) -> Effects:
        """Derive the keys of users that enrolled; later ones have a roster of their own."""
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
        mask = message.update
        self.refused.add(mask)  # unless it has begun below
        (owner,), (cycle,), _ = _columns((mask,))
        if owner != self.user or cycle <= self.latest.get(owner, -1):
            raise PeerFault(SERVER, f"{mask} is not a new cycle of mine")
        if len(self.peers) + 1 < p.U:
            raise PeerFault(SERVER, f"a cycle with {len(self.peers) + 1} users enrolled, below U={p.U}")
        assert self.channels is not None
        self.latest[owner] = cycle
        z = ops.prg(ops.secret(self.entropy(f"mask {mask}")), p.d)
        noise = ops.secret(self.entropy(f"noise {mask}"))
        # One order of the points for all, so that users who know the same share one matrix.
        coded = ops.encode(z, noise, mds.points_of(self.circle, p.q), p.U, p.T)
        place = self.circle.index(self.user)
        others = AllBut(len(self.circle), place)
        self.mask = (mask, z)
        self.refused.discard(mask)
        self.held_shares[mask] = (ops.pick(coded, [place]), 0)
        self.made[message.version].append(mask)
        sealed = self.channels.seal(self.peers, ops.pick(coded, others), cycle)
        shares = MaskShares(mask, message.version, tuple(self.peers), sealed)
        return [Send(SERVER, shares), Ready(mask)]

    def submit(self, update: Update) -> Effects:
        """Mask the update (eq. 32) with the mask of its own cycle, which is used up by that."""
        if update.id in self.refused:
            return [Ignore(self.user, "update", Reason.NOT_BEGUN, update.id)]
        if self.mask is None or self.mask[0] != update.id:
            raise ValueError(f"user {self.user}: no mask for update {name_of(update.id)}")
        self.ops.phase("upload")
        (mask, z), self.mask = self.mask, None
        x = self.params.quantise(self.ops, update, self.entropy, weighted=False)
        return [Send(SERVER, Upload(mask, update.version, self.ops.add(x, z)))]

    def hold(self, inbox: MaskInbox) -> Effects:
        """Keep others' coded shares until a recovery asks for them or they are too old.

        A sender's cycles only grow, so a share that was answered for or forgotten never comes back.
        """
        assert self.channels is not None
        users, cycles, distinct = _columns(inbox.masks)
        if distinct < len(users) or len(inbox.versions) != len(users):
            raise PeerFault(SERVER, "the inbox names a user twice, or a mask without its version")
        effects: Effects = []
        new = self._new(users, cycles)
        if len(new) < len(users):
            for k in (k for k in range(len(users)) if k not in new):
                reason = Reason.REPEATED if users[k] in self.latest else Reason.STRANGER
                effects.append(Ignore(users[k], "share", reason, inbox.masks[k]))
        flaw = misshapen(inbox.sealed, len(users), self.share_bytes, U8) if new else ""
        if flaw:
            raise PeerFault(SERVER, flaw)
        while new:
            masks, versions, sealed = inbox.masks, inbox.versions, inbox.sealed
            if len(new) < len(users):
                masks, versions = tuple(masks[k] for k in new), tuple(versions[k] for k in new)
                sealed = self.ops.pick(sealed, new)
            senders, counters = tuple(users[k] for k in new), tuple(cycles[k] for k in new)
            try:
                rows = self.channels.open(senders, sealed, counters, U32)
            except PeerFault as fault:
                forged = new.pop(senders.index(fault.user))
                effects.append(Refuse(fault.user, "share", fault.why, inbox.masks[forged]))
                continue
            self.latest.update(zip(senders, counters, strict=True))
            self.held_shares.update(
                zip(masks, zip(repeat(rows), range(rows.rows), strict=False), strict=True)
            )
            for mask, version in zip(masks, versions, strict=True):
                self.made[version].append(mask)
            break
        return effects

    def _new(self, users: tuple[int, ...], cycles: tuple[int, ...]) -> list[int]:
        """Return the places of masks that are later than all that were heard of from the same peer."""
        known = list(map(self.latest.get, users, repeat(AFTER_ALL_CYCLES)))
        if self.user in users:
            known[users.index(self.user)] = AFTER_ALL_CYCLES
        if all(map(gt, cycles, known)):
            return list(range(len(users)))
        return [k for k, (cycle, last) in enumerate(zip(cycles, known, strict=True)) if cycle > last]

    def _forget(self, oldest: int) -> None:
        for version in [version for version in self.made if version < oldest]:
            for mask in self.made.pop(version):
                self.held_shares.pop(mask, None)

    def answer(self, request: Recover) -> Effects:
        """Sum the coded shares by the weights of eq. 34, once for each mask."""
        p, masks = self.params, request.masks
        if request.recovery.number <= self.asked:
            return [Ignore(SERVER, "recover", Reason.REPEATED, request.recovery)]
        _, _, distinct = _columns(masks)
        least = f"least={p.least}" if p.timed else f"K={p.K}"
        if distinct < len(masks) or len(masks) < (p.least if p.timed else p.K):
            raise PeerFault(SERVER, f"{len(masks)} masks of {distinct} users: doubled, or below {least}")
        if len(masks) != len(request.weights):
            raise PeerFault(SERVER, f"{len(request.weights)} weights for {len(masks)} masks")
        if not 1 <= min(request.weights) <= max(request.weights) <= p.c_g:
            raise PeerFault(SERVER, f"a weight outside 1 .. c_g={p.c_g}")
        for mask in filterfalse(self.held_shares.__contains__, masks):
            if mask.cycle <= self.latest.get(mask.user, -1):
                raise PeerFault(SERVER, f"mask {mask} was answered for before, or is too old")
        self.asked = request.recovery.number
        self._forget(request.version - p.staleness_bound)
        missing = list(filterfalse(self.held_shares.__contains__, masks))
        if missing:
            return [Ignore(SERVER, "recover", Reason.NO_SHARE, request.recovery, f"mask {missing[0]}")]
        rows, at = zip(*map(self.held_shares.pop, masks), strict=True)
        content = self.ops.weighted_sum(self.ops.gather(rows, at), request.weights)
        return [Send(SERVER, SumOfShares(request.recovery, content))]


@lru_cache(maxsize=64)  # every user is sent the same masks
def _columns(masks: tuple[UpdateId, ...]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return the users and the cycles of masks that the server names, and how many users they are. PeerFault
    if a cycle has no nonce, under which its shares would be sealed."""
    users, cycles = tuple(mask.user for mask in masks), tuple(mask.cycle for mask in masks)
    try:
        for mask in masks:
            nonce(*mask)
    except ValueError as error:
        raise PeerFault(SERVER, str(error)) from None
    return users, cycles, len(set(users))
