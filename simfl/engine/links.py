"""Links: each user has one ordered stream in each direction; the server's link is shared.

Where users reach each other directly, their messages to each other pass their own links only.

Invariant: a user's messages leave one after another, and never overtake each other. The k-th of them arrives
its latency after its last bit has left, but no sooner than the one before it. Its latency is that of the time
at which it is sent; its rate is that of every moment at which it moves (tests/engine/test_link_states.py).
States are read lazily: while a link moves nothing, its state is not read, and no event waits.

Under TCP a message moves with its headers, one window after the other: the next may leave a round trip after
the first byte of the last one. While it waits for that, it occupies the user's stream, and not the server's
link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from simfl.engine.environment import Environment
from simfl.engine.fair_link import FairLink, Flow, ServerLink
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
    from simfl.engine.user_round import UserRound
    from simfl.engine.user_side import UserSide

NONE: Any = ()
"""Transfers of an idle link: an empty list has 56 bytes, and most of many users' links are idle."""
UNBOUNDED = 2**80
"""Bit/s that no sum of users' rates reaches."""


@dataclass(slots=True, eq=False)
class Transmission:
    """A message on its way: a transfer for its link, and a row for the trace.

    One that waits for its receiver starts again from the first byte.
    """

    runtime: Runtime
    message: Message
    sender: int
    """A user, or SERVER."""
    to: int
    """Receiver: a user, or SERVER."""
    round: int
    step: int
    """Row of the step that sent it."""
    task: UserRound | None
    """The task that it belongs to, if any."""
    receiver: Receiver | None
    """The side at which it arrives; None where a socket carries it."""
    owner: UserSide | None = None
    """The users' side whose user sends it; None for a message on which no loss depends."""
    is_half: bool = False
    """Only half of it leaves, since its user is lost during it."""
    sent_ns: int = field(init=False)
    """Time at which it was sent, ns."""
    relayed: bool = field(init=False)
    """True for a message from one user to another."""
    latency_ns: int = field(init=False)
    """Set by the link that carries it, once."""
    size_bytes: int = field(init=False)
    """Bytes that leave."""
    full_bytes: int = field(init=False)
    """Bytes of the whole message."""

    def __post_init__(self) -> None:
        self.sent_ns, self.relayed = self.runtime.env.now, self.message.relayed
        size = self.full_bytes = self.message.size_bytes
        self.size_bytes = size // 2 if self.is_half else size

    def on_sent(self) -> None:
        """Notify the sender's side, as the last bit has left."""
        if self.owner is not None:
            self.owner.on_sent(self)

    def on_arrived(self) -> None:
        """Hand it to its receiver, a latency later."""
        assert self.receiver is not None
        self.receiver.receive(self)

    def on_aborted(self, moved_bytes: int) -> int:
        """Put the aborted transfer into the trace; return the row."""
        # Users that are never connected for long enough would otherwise repeat a message for ever
        # (`progress.py`).
        self.runtime.progress.aborted += 1
        return self.row(moved_bytes, None)

    def row(self, moved_bytes: int, arrived: int | None) -> int:
        """Put its transfer into the trace.

        Args:
            moved_bytes: Bytes of the message that crossed.
            arrived: Time of its arrival, ns; None if it was aborted.

        Returns:
            The row.
        """
        m, subject = self.message, name_of(self.message.subject)
        row = Sent._make((
            self.round, self.sender, self.to, m.kind, m.phase, subject, self.full_bytes, moved_bytes,
            self.step, self.sent_ns, arrived,
        ))  # fmt: skip
        return self.runtime.trace.add(row)


@dataclass(slots=True, eq=False)
class UserLink:
    """One direction of a user's link: transfers in order, one at a time. It is a life while one moves."""

    user: int
    up: bool
    """True towards the server."""
    links: Links
    """State of a user's link at a time."""
    shared: FairLink
    """The server's link."""
    jitter_s: Iterator[float] | None = None
    """The k-th is by how much the latency of the k-th message is longer; None for no jitter."""
    peers: FairLink | None = None
    """Link that relayed transfers pass; None for the server's."""
    tcp: InitVar[Tcp | None] = None
    env: Environment = field(init=False)
    connection: Connection | None = field(init=False)
    """The user's TCP connection; None where TCP's windows are not modelled."""
    rate: int = 0
    """Bit/s until the time `until`, at which the link's state may change. Set, with latency and `until`, when
    the state is first needed."""
    latency_s: float = 0.0
    """Latency until then, without jitter."""
    latency_ns: int = 0
    """The same, rounded."""
    until: int = 0
    """Time up to which the state is certain, ns."""
    is_paused: bool = False
    """The user is offline."""
    queue: list[Transmission] = NONE
    """Transfers that wait, in order."""
    active: Transmission | None = None
    """The transfer that moves; None while the link is idle or paused."""
    propagating: list[Transmission] = NONE
    """Transfers whose last bit has left and that have not arrived, in order."""
    on_idle: Callable[[int, bool], None] | None = None
    """Called with the user and `up` once nothing is on the link and it holds no state of its own."""
    on_moving: Callable[[Transmission, int | None], None] | None = None
    """Called with a transfer and None as it begins to move, and with the bytes that it has moved as its last
    bit has left or as it is interrupted."""
    _life: Life | None = None
    """Carries the transfers; None while none moves."""
    _follow_at: int = 0
    """End of the state for which a call is pending."""
    _flow: tuple[FairLink, Flow] | None = None
    """The active transfer on a shared link; None while it waits for TCP."""
    _moved: int = 0
    """Bytes of the active transfer's windows that have left."""
    _window_bps: int = 0
    """Rate of a TCP window that opens no further; 0 while it does."""
    _epoch: int = 0
    """Number of the present group of propagating transfers: an arrival of an older one is withdrawn."""
    _last: int = 0
    """Time of the last arrival, ns."""

    def __post_init__(self, tcp: Tcp | None) -> None:
        self.env = self.shared.env
        self.connection = None if tcp is None else Connection(tcp)

    def send(self, transfer: Transmission) -> None:
        """Queue a transfer, with the latency of now."""
        # The state at the time of sending gives the latency. The states while the message moves give the
        # rate.
        if self.env.now >= self.until:
            self._refresh_state()
        if self.jitter_s is None:
            transfer.latency_ns = self.latency_ns
        else:
            # The sum is rounded, so that a latency has one rounding with jitter or without.
            transfer.latency_ns = nanoseconds(self.latency_s + next(self.jitter_s))
        if self.queue is NONE:
            self.queue = []
        self.queue.append(transfer)
        self._wake()

    def _wake(self) -> None:
        """Begin to move the transfers that wait, unless one moves already."""
        if self._life is None and self.queue and not self.is_paused:
            self._life = Life(self.env, self._carry(), at_once=True)

    def _carry(self) -> Waits:
        """Move the transfers that wait, each in windows while TCP's window is smaller than it."""
        while self.queue and not self.is_paused:
            transfer = self.queue.pop(0)
            self.queue = self.queue or NONE
            link = self.peers if transfer.relayed and self.peers else self.shared
            if self.env.now >= self.until:
                self._refresh_state()
            if self.on_moving is not None:
                self.on_moving(transfer, None)
            self.active = transfer
            self._moved = self._window_bps = 0
            if self.connection is not None:
                yield from self._windows(transfer, link, self.connection)
            self._move(link, self._on_wire(transfer) - self._moved)
            # `_moved_all` wakes this life.
            yield None
            self._on_sent(transfer)
        # So that the next message begins a new life. An interrupted transfer has no life left either
        # (`_abort`).
        self._life = None

    def _windows(self, transfer: Transmission, link: FairLink, connection: Connection) -> Waits:
        """Move a message's first windows, while TCP waits for the acknowledgement of each."""
        tcp = connection.tcp
        window = connection.begin(transfer.size_bytes, self.env.now, 2 * self.latency_ns)
        while window:
            size = tcp.wire_bytes(window)
            # It need not wait behind the last window, nor behind one that takes longer than a round trip.
            remaining = self._on_wire(transfer) - self._moved
            # Integers on both sides: a window of 8 size bits at the rate, against the round trip in
            # nanoseconds. Without a division, the rate may be 0.
            if remaining <= size or 8 * NS * size >= 2 * self.latency_ns * self.rate:
                return
            since = self.env.now
            self._move(link, size)
            yield None
            self._moved += size
            now, rtt_ns = self.env.now, max(1, 2 * self.latency_ns)
            # Time beyond that of the link's own rate: others crowd the server's link.
            queued_ns = now - since - 8 * NS * size // max(1, self.rate)
            if tcp.stays_open(window, queued_ns, rtt_ns):
                # At least 1, as 0 means that the window still opens (`_cap`).
                self._window_bps = max(1, 8 * NS * tcp.wire_bytes(2 * window) // rtt_ns)
            window = 0 if self._window_bps else 2 * window
            # The acknowledgement of the first byte of this window comes a round trip after that byte has
            # left; at once if it was a slow window.
            yield max(now, since + rtt_ns) - now
            # A state that begins while nothing moves is not followed, so the wait may have ended in a later
            # one (test_tcp.py: test_a_message_that_waited_moves_at_the_rate_of_then).
            if self.env.now >= self.until:
                self._refresh_state()

    def _move(self, link: FairLink, size_bytes: int) -> None:
        """Begin to move bytes through a shared link; the last of them wakes the life."""
        self._flow = link, link.start(size_bytes, self._cap, self._moved_all)
        self._follow()

    def _moved_all(self) -> None:
        assert self._life is not None
        # Before the life continues, as it may begin the next transfer within this call.
        self._flow = None
        self._life.wake()

    def _on_sent(self, transfer: Transmission) -> None:
        """Let a transfer arrive whose last bit has left: a latency later, not before the one ahead of it."""
        self.active = None
        if self.on_moving is not None:
            self.on_moving(transfer, self._on_wire(transfer))
        if self.connection is not None:
            self.connection.sent(self.env.now)
        # Before `on_sent`, at which its user may be lost: a message that has left an uplink still arrives
        # (test_jitter.py: test_messages_that_left_a_cut_uplink_arrive).
        if self.propagating is NONE:
            self.propagating = []
        self.propagating.append(transfer)
        # A shorter latency, by jitter or a new state, lets no message overtake (tests/engine/test_jitter.py).
        self._last = max(self._last, self.env.now + transfer.latency_ns)
        self.env.call_at(self._last, partial(self._arrive, self._epoch))
        transfer.on_sent()

    def _arrive(self, epoch: int) -> None:
        # A call on the heap is not withdrawn. A downlink that was interrupted sends its messages again.
        if epoch == self._epoch:
            # No message overtakes, so the arrival that is due is that of the first one.
            first = self.propagating.pop(0)
            self.propagating = self.propagating or NONE
            first.on_arrived()
            # A link that changes has a call pending for its next state, and reads each state once.
            is_steady = self.until >= FOR_EVER and not self.is_paused
            if self.on_idle and is_steady and not (self.active or self.queue or self.propagating):
                self.on_idle(self.user, self.up)

    # -- the link's state
    @property
    def _cap(self) -> int:
        return min(self.rate, self._window_bps or self.rate)

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
        """Read the state again when it ends, if something moves then; one call a state is enough.

        A call on the heap takes a tenth of a life's memory, and most users' links change.
        """
        if self._follow_at < self.until < FOR_EVER:
            self._follow_at = self.until
            self.env.call_at(self.until, self._end_state)

    def _end_state(self) -> None:
        # A message that was sent at this nanosecond may have read the new state already (test_link_states.py:
        # test_a_message_at_the_end_of_a_state_shares_its_look).
        if self.active is not None and self.env.now >= self.until:
            self._refresh_state()

    # -- interruptions
    def pause(self) -> None:
        """Pause while the user is offline: messages wait, on a downlink also propagating ones."""
        self.is_paused = True
        # In front, in order: interrupted messages start again before the others that wait (test_links.py:
        # test_a_paused_downlink_keeps_its_order).
        self.queue = [*self._interrupt(), *self.queue] or NONE

    def resume(self) -> None:
        """Move messages again, as the user is back."""
        self.is_paused = False
        self._wake()

    @property
    def settling_ns(self) -> int:
        """Nanoseconds until all messages that have left have arrived.

        At least a latency, since the end of a connection is as slow as a message.
        """
        # An idle link has not read its state for some time.
        if self.env.now >= self.until:
            self._refresh_state()
        return max(self.latency_ns, self._last - self.env.now)

    def close(self) -> None:
        """End the transfer that moves, as the run ends."""
        self._abort()

    def cut(self) -> None:
        """Drop messages that have not left, as the user is lost; on a downlink also propagating ones."""
        # A lost user sends nothing further of this round, so the returned messages are not queued again.
        # Their rows are written.
        self._interrupt()
        for transfer in self.queue:
            transfer.on_aborted(0)
        self.queue = NONE

    def _interrupt(self) -> list[Transmission]:
        """Interrupt, and return in order, the transfers that stop while the user is offline."""
        aborted = self._abort()
        if self.connection is not None:
            self.connection.broke()
        # On the uplink, messages that propagate have left the user and still arrive at the server.
        if not self.up:
            self._epoch += 1
            # A message that is sent again waits for none of before.
            self._last = 0
            for transfer in self.propagating:
                transfer.on_aborted(transfer.size_bytes)
            # In the order of sending: propagating messages left before the one that moves.
            aborted = [*self.propagating, *aborted]
            self.propagating = NONE
        return aborted

    def _abort(self) -> list[Transmission]:
        """Abort the transfer that moves, if any; return it in a list."""
        if self.active is None:
            return []
        assert self._life is not None
        # The life first: the end of its transfer must not wake it.
        self._life.stop()
        transfer, flow = self.active, self._flow
        self.active = self._flow = self._life = None
        moved_bytes = self._moved + (0 if flow is None else flow[0].stop(flow[1]))
        if self.on_moving is not None:
            self.on_moving(transfer, moved_bytes)
        # The trace has bytes without TCP's headers (test_tcp.py:
        # test_an_aborted_transfer_reports_bytes_of_the_message).
        if moved_bytes and self.connection is not None:
            moved_bytes = transfer.size_bytes * moved_bytes // self._on_wire(transfer)
        transfer.on_aborted(moved_bytes)
        return [transfer]

    def _on_wire(self, transfer: Transmission) -> int:
        """Return the bytes that a transfer moves, with TCP's headers where they are modelled."""
        size = transfer.size_bytes
        return size if self.connection is None else self.connection.tcp.wire_bytes(size)


@dataclass(eq=False)
class VirtualNetwork:
    """All links: users', whose states are functions of time, and the server's in each direction."""

    env: Environment
    states: Links
    """State of a user's link at a time."""
    server: Callable[[int], tuple[int, int, int]]
    """Returns the server's up and down rates at a time, bit/s, and the time until which they stay."""
    jitter: Callable[[int, bool], Iterator[float] | None] | None = None
    """Returns, for a (user, up), by how many seconds the latency of each message is longer."""
    direct: bool = False
    """Relayed transfers pass the two users' links only, not the server's."""
    tcp: Callable[[int], Tcp | None] = lambda user: None
    """Model of a user's connections, where TCP's windows are simulated."""
    on_moving: Callable[[int, bool, Transmission, int | None], None] | None = None
    """Called with (user, up, transfer, None) as a transfer begins to move on a user's link; as its last bit
    has left, or as it is aborted, the bytes that it moved replace None."""
    drops_idle: bool = False
    """Links on which nothing is are made anew when they are used: of many users most are idle."""
    _links: dict[int, UserLink | None] = field(default_factory=dict)
    """Links by 2 x user, and 1 more upwards: a pair would take 40 bytes more. None for one that was idle and
    is made again when it is used: its place decides the order of `close`."""
    _paused: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._shared = {up: ServerLink(self.env, partial(self._rates, up)) for up in (True, False)}
        self._peers = {up: FairLink(self.env, UNBOUNDED) if self.direct else None for up in (True, False)}

    def _rates(self, up: bool, now: int) -> tuple[int, int]:
        up_bps, down_bps, until = self.server(now)
        # Users' uploads pass the server's downlink.
        return down_bps if up else up_bps, until

    def link(self, user: int, up: bool) -> UserLink:
        """Return a user's link in one direction, made when it is first used."""
        user_link = self._links.get(2 * user + up)
        if user_link is None:
            jitter_s = None if self.jitter is None else self.jitter(user, up)
            shared, peers = self._shared[up], self._peers[up]
            user_link = UserLink(user, up, self.states, shared, jitter_s, peers, self.tcp(user))
            # The user may have gone offline before its link was first used (test_coming_and_going.py:
            # test_messages_to_a_user_away_from_the_start_wait).
            user_link.is_paused = user in self._paused
            # Draws of a jitter, and windows of TCP, last for a run.
            if self.drops_idle and jitter_s is None and user_link.connection is None:
                user_link.on_idle = self._drop
            user_link.on_moving = None if self.on_moving is None else partial(self.on_moving, user, up)
            self._links[2 * user + up] = user_link
        return user_link

    def _drop(self, user: int, up: bool) -> None:
        """Drop an idle link."""
        self._links[2 * user + up] = None

    def pause(self, user: int) -> None:
        """Pause the links of a user that went offline."""
        self._paused.add(user)
        for link in self._links_of(user):
            link.pause()

    def resume(self, user: int) -> None:
        """Resume the links of a user that is back online."""
        self._paused.discard(user)
        for link in self._links_of(user):
            link.resume()

    def is_busy(self, user: int) -> bool:
        """Return True if a message is on its way from or to a user, or waits."""
        return any(link.active or link.queue or link.propagating for link in self._links_of(user))

    def _links_of(self, user: int) -> list[UserLink]:
        links = (self._links.get(2 * user + up) for up in (True, False))
        return [link for link in links if link is not None]

    def close(self) -> None:
        """Put the transfers in progress into the trace as aborted."""
        for link in filter(None, self._links.values()):
            link.close()
