"""LightSecAgg over a buffer (App. F): masks made in different rounds still sum, since coding is linear.

    client   invited -> keyed; then per cycle: begin -> mask and shares out -> submit -> masked upload
    server   advertise -> roster; shares of K masks -> an inbox for each user;
             uploads -> buffer of K -> recover (any U answers) -> version + 1

A mask is known by its stamp: the user, its cycle, and the version t_i that it was made on. When K updates
wait, the server names them with their integer weights (eq. 34); user j answers with the weighted sum of
the coded shares that it holds of them; U answers decode to the weighted sum of the masks (eq. 35).

Shares wait at the server until K masks are shared, a buffer's worth, or until a recovery needs one that
waits: then each user is sent all that it is to have in one message, which the request for shares follows.

A client answers for a mask once; refuses a set that names a user twice, is below K, or has a weight outside
1 .. c_g; and forgets shares beyond the staleness bound.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from itertools import filterfalse, repeat
from operator import gt

from simfl.crypto import mds
from simfl.crypto.keys import nonce
from simfl.crypto.quantize import round_weight
from simfl.dataplane.handles import U8, U32, Handle
from simfl.dataplane.ops import Ops, PeerFault, seed_array
from simfl.protocols.buffered_server import BufferedServer, Upload, Waiting, stamp
from simfl.protocols.index_views import AllBut, Users
from simfl.protocols.keying import TAG_BYTES, Advertise, Channels, Invite, Roster, check_roster, coded_bytes
from simfl.protocols.machine import (
    SERVER,
    Abort,
    Discard,
    Discarded,
    Effects,
    Entropy,
    Ignore,
    Message,
    Params,
    Ready,
    Refuse,
    Result,
    Send,
    Timer,
    Update,
    misshapen,
)
from simfl.protocols.stamped import MaskInbox, MaskShares, Recover, Start, SumOfShares, recovery

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
        self.circle: tuple[
            int, ...
        ] = ()  # the peers and itself, by number: the same for all who know the same
        self.mask: tuple[str, Handle] | None = None
        self.held: dict[str, tuple[Handle, int]] = {}  # rows, and which of them
        self.made: defaultdict[int, list[str]] = defaultdict(list)  # masks by t_i, also those answered for
        self.latest: dict[int, int] = {}
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


class LightSecAggAsyncServer(BufferedServer):
    """Enrols users, passes coded shares on, and recovers weighted sums."""

    def __init__(self, users: Iterable[int], params: Params, ops: Ops, entropy: Entropy) -> None:
        super().__init__(users, params, ops, entropy)
        self.invited = frozenset(self.users)
        self.publics: dict[int, Handle] = {}
        self.enrolled = False
        self.offline: set[int] = set()
        self.shared: dict[int, str] = {}
        self.gathered: dict[int, MaskShares] = {}
        self.number = -1
        self.request: Recover | None = None
        self.answers: dict[int, Handle] = {}

    def start(self) -> Effects:
        return [Timer("advertise", "offline"), *(Send(user, Invite()) for user in self.users)]

    def other(self, sender: int, message: Message) -> Effects:
        self.ops.phase(message.phase)
        if isinstance(message, Advertise):
            return self._enrol(sender, message)
        if isinstance(message, MaskShares):
            return self._relay(sender, message)
        if isinstance(message, SumOfShares):
            return self._answered(sender, message)
        return super().other(sender, message)

    def receive(self, sender: int, message: Message) -> Effects:
        if isinstance(message, Upload) and self.shared.get(sender) != message.about:
            return [Ignore(sender, "upload", "its mask was not shared", message.about)]
        return super().receive(sender, message)

    # -- enrolment: once for all, or one by one for who comes late
    def _enrol(self, user: int, message: Advertise) -> Effects:
        if user in self.publics or user not in self.invited:
            return [Ignore(user, "advertise", "a second one, or a stranger's")]
        flaw = misshapen(message.publics, 1, 32, U8)
        if flaw:
            return [Refuse(user, "advertise", flaw)]
        self.publics[user] = message.publics
        if self.enrolled:
            newcomer = Roster(Users((user,)), message.publics)
            others = [Send(u, newcomer) for u in self.publics if u != user]
            return [*others, Send(user, self._roster())]
        return self._close_enrolment() if len(self.publics) == len(self.users) else []

    def _close_enrolment(self) -> Effects:
        self.enrolled = True
        roster = self._roster() if self.publics else None
        return [Send(user, roster) for user in self.publics] if roster else []

    def _roster(self) -> Roster:
        return Roster(Users(self.publics), self.ops.join(list(self.publics.values())))

    @property
    def open(self) -> bool:
        return self.enrolled and len(self.publics) >= self.params.U

    def admits(self, user: int) -> bool:
        return user in self.publics and super().admits(user)

    # -- cycles
    def invite(self, user: int, name: str) -> Effects:
        return [Send(user, Start(name, self.version))]

    def _relay(self, sender: int, message: MaskShares) -> Effects:
        known = self.shared.get(sender) == message.about
        if known or self.flights.get(sender) != (message.about, message.version):
            return [Ignore(sender, "shares", "nobody waits for them", message.about)]
        share_bytes = coded_bytes(self.params, self.params.d) + TAG_BYTES
        flaw = misshapen(message.sealed, len(message.to), share_bytes, U8)
        to = set(message.to)
        if flaw or len(to) < len(message.to) or sender in to or not self.publics.keys() >= to:
            why = flaw or "malformed: for strangers or twice"
            return [Refuse(sender, "shares", why, message.about), *self._give_up(sender)]
        self.shared[sender] = message.about
        self.gathered.pop(sender, None)  # of a cycle that came to nothing: no recovery will ask for it
        self.gathered[sender] = message
        return self._pass_on() if len(self.gathered) >= self.params.K else []

    def _pass_on(self) -> Effects:
        """To each user, in one message, its shares of the masks that were gathered."""
        gathered, self.gathered = list(self.gathered.values()), {}
        rows = [dict(zip(m.to, range(len(m.to)), strict=True)) for m in gathered]
        everything = _Selected(gathered)
        effects: Effects = []
        for user in self.publics:
            if all(user in row for row in rows):
                mine, of = everything, rows
            else:  # its own mask is among them, or one that was shared before it enrolled
                there = [k for k, row in enumerate(rows) if user in row]
                mine, of = _Selected([gathered[k] for k in there]), [rows[k] for k in there]
            if of:
                sealed = self.ops.gather(mine.sealed, [row[user] for row in of])
                effects.append(Send(user, MaskInbox(mine.names, mine.versions, sealed)))
        return effects

    # -- recovery
    def aggregate(self, taken: list[Waiting]) -> Effects:
        self.number += 1
        weights = []
        for w in taken:
            seed = seed_array(self.entropy(f"staleness {w.about}"))
            s = self.params.staleness(self.version - w.version)
            weights.append(round_weight(s, self.params.c_g, seed))
        self.members = tuple(self.member(w, weight) for w, weight in zip(taken, weights, strict=True))
        self.sum = self.ops.weighted_sum([w.vector for w in taken], weights)
        self.answers = {}
        names = tuple(w.about for w in taken)
        self.request = Recover(self.number, self.version, names, tuple(weights))
        asked = [user for user in self.publics if user not in self.offline]
        waits = any(w.user in self.gathered for w in taken)
        timer = Timer("recovery", "recovery", recovery(self.number))
        return [timer, *(self._pass_on() if waits else ()), *(Send(user, self.request) for user in asked)]

    def _answered(self, user: int, message: SumOfShares) -> Effects:
        if self.request is None or message.number != self.request.number or user in self.answers:
            return [Ignore(user, "answer", "late, or a second one", message.about)]
        if user not in self.publics:
            return [Ignore(user, "answer", "a stranger's", message.about)]
        flaw = misshapen(message.content, 1, coded_bytes(self.params, self.params.d) // U32, U32)
        if flaw:
            return [Refuse(user, "answer", flaw, message.about)]
        self.answers[user] = message.content
        return self._decode() if len(self.answers) == self.params.U else []

    def _decode(self) -> Effects:
        ops, p = self.ops, self.params
        who = sorted(self.answers)
        rows = ops.join([self.answers[user] for user in who])
        masks = ops.decode(rows, mds.points_of(tuple(who), p.q), p.U, p.T, p.d)
        total = ops.sub(self.sum, masks)
        mean = ops.dequantise(total, p.levels, sum(int(m.factor) for m in self.members))
        self.request = None
        return self.finish([Result(total, mean, self.members)], advance=True)

    # -- timers and connections
    def awaits(self, timer: Timer) -> bool:
        if timer.name == "advertise":
            return not self.enrolled
        if timer.name == "recovery":
            return self.request is not None and self.request.about == timer.about
        return super().awaits(timer)

    def expire(self, timer: Timer) -> Effects:
        if not self.awaits(timer):
            return [Ignore(SERVER, "timer", "stale", timer.about)]
        if timer.name == "advertise":
            return self._close_enrolment()
        if timer.name == "recovery":
            self.request = None
            reason = f"recovery: {len(self.answers)} users answered, {self.params.U} needed"
            gone: Effects = [Discard(m.user, m.about, Discarded.ABORTED) for m in self.members]
            return self.finish([*gone, Abort(reason)], advance=False)
        return super().expire(timer)

    def gone(self, user: int) -> Effects:
        self.offline.add(user)
        return super().gone(user)

    def back(self, user: int) -> Effects:
        """A user connected again: an open recovery asks it too."""
        was_away = user in self.offline
        self.offline.discard(user)
        if self.request is None or not was_away or user not in self.publics or user in self.answers:
            return []
        return [Send(user, self.request)]


class _Selected:
    """Masks that were shared, by columns."""

    def __init__(self, shared: list[MaskShares]) -> None:
        self.names = tuple(m.name for m in shared)
        self.versions = tuple(m.version for m in shared)
        self.sealed = [m.sealed for m in shared]


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
