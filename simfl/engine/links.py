"""Links: each user has one ordered stream in each direction; the server's link is shared.

Where users reach each other directly, what they have for each other passes their own links only.

Invariant: a user's own messages go one after another and never overtake each other. The k-th of them arrives
its latency after its last bit has left, but no sooner than the one before it. Its latency is that of the time
at which it is sent; its rate is that of every moment at which it moves. States are read lazily: of a link
that moves nothing, nobody asks for the state, and no event waits.

Under TCP a message moves with its headers, one window after the other: the next may leave a round trip after
the last one's first byte. While it waits for that the stream is taken, and the server's link is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from simfl.engine.environment import Environment
from simfl.engine.fair_link import FairLink, Flow
from simfl.engine.life import Life, Waits
from simfl.protocols.machine import Message
from simfl.trace.codes import name_of
from simfl.trace.rows import Sent
from simfl.virtual_time import NS, nanoseconds
from simfl.world.links import Links
from simfl.world.tcp import Connection, Tcp
from simfl.world.timelines import FOR_EVER

if TYPE_CHECKING:
    from simfl.engine.devices import Runtime
    from simfl.engine.sides import Receiver
    from simfl.engine.user_side import UserRound, UserSide

UNBOUNDED = 2**80  # bit/s that no sum of users' rates reaches


class Transfer(Protocol):
    """Something that a link carries. The link that takes it sets its latency, once; a transfer that waits for
    its receiver starts again from its first byte.
    """

    latency_ns: int

    @property
    def size_bytes(self) -> int: ...
    @property
    def relayed(self) -> bool:
        """True for what users have for each other."""
        ...

    def on_sent(self) -> object:
        """Called when its last bit has left."""

    def on_arrived(self) -> object:
        """Called when it arrives, a latency later."""

    def on_aborted(self, moved_bytes: int, /) -> object:
        """Called when it is aborted."""


@dataclass(slots=True, eq=False)
class Transmission:
    """A message on its way, as its link and as the trace see it."""

    runtime: Runtime
    message: Message
    sender: int
    to: int
    round: int
    step: int
    """Row of the step that sent it."""
    task: UserRound | None
    """The part that it belongs to, if any."""
    receiver: Receiver | None
    """The side at which it arrives; None where a socket carries it."""
    owner: UserSide | None = None
    """The users' side whose user sends it; None of a message that no loss depends on."""
    half: bool = False
    """Only half of it leaves, as its user is lost meanwhile."""
    at: int = field(init=False)
    """Time at which it was sent, ns."""
    relayed: bool = field(init=False)
    latency_ns: int = field(init=False)
    size_bytes: int = field(init=False)
    """Part of its `whole_bytes` that leaves."""
    whole_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.at, self.relayed = self.runtime.env.now, self.message.relayed
        size = self.whole_bytes = self.message.size_bytes
        self.size_bytes = size // 2 if self.half else size

    def on_sent(self) -> None:
        """Notify the sender's side that the last bit has left."""
        if self.owner is not None:
            self.owner.left(self)

    def on_arrived(self) -> None:
        """Hand it to its receiver."""
        assert self.receiver is not None
        self.receiver.arrived(self)

    def on_aborted(self, moved_bytes: int) -> int:
        """Put the aborted transfer into the trace; return the row."""
        self.runtime.progress.broken += 1
        return self.row(moved_bytes, None)

    def row(self, moved_bytes: int, arrived: int | None) -> int:
        """Put its transfer into the trace; return the row."""
        m, subject = self.message, name_of(self.message.subject)
        row = Sent._make((
            self.round, self.sender, self.to, m.kind, m.phase, subject, self.whole_bytes, moved_bytes,
            self.step, self.at, arrived,
        ))  # fmt: skip
        return self.runtime.trace.add(row)


class UserLink:
    """One direction of a user's link: transfers in order, one at a time. It is a life while one moves.

    Attributes:
        jitter_s: The k-th is by how much the latency of the k-th message is longer; None for no jitter.
        peers: What relayed transfers pass in place of the server's link.
        connection: The user's TCP connection; None where TCP's windows are not modelled.
        rate: Bit/s until the time `until`, at which the link's state may change.
        queue: Transfers that wait, in order.
        active: The transfer that moves; None while the link is idle or paused.
        propagating: Transfers whose last bit has left and that have not arrived, in order.
        heard: Called with a transfer and None as it begins to move, and with the bytes that it has moved as
            its last bit has left or as it is interrupted.
    """

    __slots__ = (
        "_epoch", "_flow", "_follow_at", "_last", "_life", "_most_bps", "_moved", "active", "connection",
        "env", "heard", "jitter_s", "latency_ns", "latency_s", "links", "paused", "peers", "propagating",
        "queue", "rate", "shared", "until", "up", "user",
    )  # fmt: skip

    def __init__(
        self,
        user: int,
        up: bool,
        links: Links,
        shared: FairLink,
        jitter_s: Iterator[float] | None = None,
        peers: FairLink | None = None,
        tcp: Tcp | None = None,
    ) -> None:
        self.user = user
        self.up = up
        self.links = links
        self.env = shared.env
        self.shared = shared
        self.peers = peers or shared
        self.jitter_s = jitter_s
        self.connection = None if tcp is None else Connection(tcp)
        self.rate = 0  # this, the latency and `until` are set at the first look
        self.latency_s = 0.0
        self.latency_ns = 0
        self.until = 0
        self.paused = False
        self.queue: list[Transfer] = []
        self.propagating: list[Transfer] = []
        self.active: Transfer | None = None
        self.heard: Callable[[Transfer, int | None], None] | None = None
        self._life: Life | None = None
        self._follow_at = 0  # the end of the state that is waited for
        self._flow: tuple[FairLink, Flow] | None = None  # None while TCP waits
        self._moved = 0  # bytes of the active transfer's windows that have left
        self._most_bps = 0  # the rate of a TCP window that opens no further; 0 while it does
        self._epoch = 0  # of what flies: an arrival of an older one is withdrawn
        self._last = 0  # the time of the last arrival

    def send(self, transfer: Transfer) -> None:
        if self.env.now >= self.until:
            self._refresh_state()
        if self.jitter_s is None:
            transfer.latency_ns = self.latency_ns
        else:
            transfer.latency_ns = nanoseconds(self.latency_s + next(self.jitter_s))
        self.queue.append(transfer)
        self._wake()

    def _wake(self) -> None:
        """Begin to move what waits, unless something moves already."""
        if self._life is None and self.queue and not self.paused:
            self._life = Life(self.env, self._carry(), at_once=True)

    def _carry(self) -> Waits:
        """Move what waits, one transfer after the other, each in windows while TCP's is smaller than it."""
        while self.queue and not self.paused:
            transfer = self.queue.pop(0)
            link = self.peers if transfer.relayed else self.shared
            if self.env.now >= self.until:
                self._refresh_state()
            if self.heard is not None:
                self.heard(transfer, None)
            self.active = transfer
            self._moved = self._most_bps = 0
            if self.connection is not None:
                yield from self._windows(transfer, link, self.connection)
            self._move(link, self._on_wire(transfer) - self._moved)
            yield None
            self._left(transfer)
        self._life = None

    def _windows(self, transfer: Transfer, link: FairLink, connection: Connection) -> Waits:
        """Move a message's first windows, as long as TCP waits for the acknowledgement of each."""
        tcp = connection.tcp
        window = connection.begin(transfer.size_bytes, self.env.now, 2 * self.latency_ns)
        while window:
            size = tcp.wire_bytes(window)
            rest = self._on_wire(transfer) - self._moved
            if rest <= size or 8 * NS * size >= 2 * self.latency_ns * self.rate:
                return
            since = self.env.now
            self._move(link, size)
            yield None
            self._moved += size
            now, rtt_ns = self.env.now, max(1, 2 * self.latency_ns)
            queued_ns = now - since - 8 * NS * size // max(1, self.rate)
            if tcp.stays_open(window, queued_ns, rtt_ns):
                self._most_bps = max(1, 8 * NS * tcp.wire_bytes(2 * window) // rtt_ns)
            window = 0 if self._most_bps else 2 * window
            yield max(now, since + rtt_ns) - now
            if self.env.now >= self.until:
                self._refresh_state()

    def _move(self, link: FairLink, size_bytes: int) -> None:
        """Begin to move bytes through a shared link, at this link's rate at most; its life is woken then."""
        self._flow = link, link.start(size_bytes, self._cap, self._moved_all)
        self._follow()

    def _moved_all(self) -> None:
        assert self._life is not None
        self._flow = None
        self._life.wake()

    def _left(self, transfer: Transfer) -> None:
        """The last bit of a transfer has left: it arrives a latency later, not before the one ahead of it."""
        self.active = None
        if self.heard is not None:
            self.heard(transfer, self._on_wire(transfer))
        if self.connection is not None:
            self.connection.sent(self.env.now)
        self.propagating.append(transfer)
        self._last = max(self._last, self.env.now + transfer.latency_ns)
        self.env.call_at(self._last, partial(self._arrive, self._epoch))
        transfer.on_sent()

    def _arrive(self, epoch: int) -> None:
        if epoch == self._epoch:
            self.propagating.pop(0).on_arrived()

    # -- the link's state
    @property
    def _cap(self) -> int:
        return min(self.rate, self._most_bps or self.rate)

    def _refresh_state(self) -> None:
        """Apply the link's present state, also to the transfer that moves."""
        up_bps, down_bps, self.latency_s, self.until = self.links(self.user, self.env.now)
        self.rate = up_bps if self.up else down_bps
        self.latency_ns = nanoseconds(self.latency_s)
        if self._flow is not None:
            link, flow = self._flow
            link.change(flow, self._cap)
            self._follow()

    def _follow(self) -> None:
        """Look again when the state ends, unless nothing moves then; one call a state is enough.

        It is no life: a call on the heap takes a tenth of the memory, and most users' links change.
        """
        if self._follow_at < self.until < FOR_EVER:
            self._follow_at = self.until
            self.env.call_at(self.until, self._end_state)

    def _end_state(self) -> None:
        if self.active is not None and self.env.now >= self.until:  # not looked at this nanosecond
            self._refresh_state()

    # -- interruptions
    def pause(self) -> None:
        """Pause while the user is offline: messages wait, on a downlink also those in the air."""
        self.paused = True
        self.queue[:0] = self._interrupt()

    def resume(self) -> None:
        self.paused = False
        self._wake()

    @property
    def settling_ns(self) -> int:
        """Time until all that has left has arrived, at least a latency: the end of a connection is as slow as
        a message."""
        if self.env.now >= self.until:
            self._refresh_state()
        return max(self.latency_ns, self._last - self.env.now)

    def close(self) -> None:
        self._break()

    def cut(self) -> None:
        """Drop what has not left yet, as the user is lost; on a downlink also what is in the air."""
        self._interrupt()
        for transfer in self.queue:
            transfer.on_aborted(0)
        self.queue.clear()

    def _interrupt(self) -> list[Transfer]:
        """Interrupt, and return in order, the transfers that stop while the user is offline."""
        broken = self._break()
        if self.connection is not None:
            self.connection.broke()
        if not self.up:
            self._epoch += 1
            self._last = 0  # what is to be sent again arrives anew
            for transfer in self.propagating:
                transfer.on_aborted(transfer.size_bytes)
            broken = [*self.propagating, *broken]
            self.propagating.clear()
        return broken

    def _break(self) -> list[Transfer]:
        if self.active is None:
            return []
        assert self._life is not None
        self._life.stop()
        transfer, flow = self.active, self._flow
        self.active = self._flow = self._life = None
        moved_bytes = self._moved + (0 if flow is None else flow[0].stop(flow[1]))
        if self.heard is not None:
            self.heard(transfer, moved_bytes)
        if moved_bytes and self.connection is not None:  # of the message itself
            moved_bytes = transfer.size_bytes * moved_bytes // self._on_wire(transfer)
        transfer.on_aborted(moved_bytes)
        return [transfer]

    def _on_wire(self, transfer: Transfer) -> int:
        size = transfer.size_bytes
        return size if self.connection is None else self.connection.tcp.wire_bytes(size)


class ServerLink(FairLink):
    """One direction of the server's link.

    Args:
        env: Virtual time.
        rates: Returns the link's bit/s at a time, and the time until which they are guaranteed to stay.
    """

    def __init__(self, env: Environment, rates: Callable[[int], tuple[int, int]]) -> None:
        super().__init__(env, 0)
        self.rates = rates
        self.until = 0

    def start(self, size_bytes: int, cap_bps: int, done: Callable[[], None]) -> Flow:
        if self.env.now >= self.until:
            self._refresh_state()
        return super().start(size_bytes, cap_bps, done)

    def _refresh_state(self) -> None:
        rate_bps, self.until = self.rates(self.env.now)
        self.rate(rate_bps)
        if self.until < FOR_EVER:
            self.env.call_at(self.until, partial(self._end_state, self.until))

    def _end_state(self, until: int) -> None:
        if self.busy and until == self.until:  # not looked at this nanosecond
            self._refresh_state()


class Network:
    """All links: of users, whose states are a function of the time, and the server's in each direction.

    Args:
        env: Virtual time.
        links: State of a user's link at a time.
        server: Returns the server's up and down rates at a time, bit/s, and the time until which they are
            guaranteed to stay.
        jitter: Seconds by which the latency of the k-th message of a (user, up) is longer; none unless given.
        direct: Relayed transfers pass the two users' own links only, not the server's.
        tcp: Model of users' connections, where TCP's windows are simulated.

    Attributes:
        radio: Called with (user, up, transfer, None) as a transfer begins to move on a user's link. Called
            with the moved bytes in place of None as its last bit has left or it is aborted.
    """

    radio: Callable[[int, bool, Transfer, int | None], None] | None = None

    def __init__(
        self,
        env: Environment,
        links: Links,
        server: Callable[[int], tuple[int, int, int]],
        jitter: Callable[[int, bool], Iterator[float] | None] | None = None,
        direct: bool = False,
        tcp: Callable[[int], Tcp | None] = lambda user: None,
    ) -> None:
        self._states = links
        self._jitter = jitter
        self._tcp = tcp

        def rates(up: bool, now: int) -> tuple[int, int]:
            up_bps, down_bps, until = server(now)
            return down_bps if up else up_bps, until  # what users send up comes in through its downlink

        self._shared = {up: ServerLink(env, partial(rates, up)) for up in (True, False)}
        self._peers = {up: FairLink(env, UNBOUNDED) if direct else link for up, link in self._shared.items()}
        self._links: dict[tuple[int, bool], UserLink] = {}
        self._paused: set[int] = set()

    def link(self, user: int, up: bool) -> UserLink:
        """Return a user's link in one direction, made when it is first used."""
        user_link = self._links.get((user, up))
        if user_link is None:
            more_s = None if self._jitter is None else self._jitter(user, up)
            shared, peers = self._shared[up], self._peers[up]
            user_link = UserLink(user, up, self._states, shared, more_s, peers, self._tcp(user))
            user_link.paused = user in self._paused
            user_link.heard = None if self.radio is None else partial(self.radio, user, up)
            self._links[user, up] = user_link
        return user_link

    def pause(self, user: int) -> None:
        """Pause the links of a user that went offline."""
        self._paused.add(user)
        for link in self._made(user):
            link.pause()

    def resume(self, user: int) -> None:
        self._paused.discard(user)
        for link in self._made(user):
            link.resume()

    def busy(self, user: int) -> bool:
        """Return True if anything is on its way from or to a user, or waits."""
        return any(link.active or link.queue or link.propagating for link in self._made(user))

    def _made(self, user: int) -> list[UserLink]:
        links = (self._links.get((user, up)) for up in (True, False))
        return [link for link in links if link is not None]

    def close(self) -> None:
        for link in self._links.values():
            link.close()
