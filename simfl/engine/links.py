"""Links: each user has one ordered stream in each direction; the server's link is shared.

Where users reach each other directly, what they have for each other passes their own links only.

Invariant: a user's own messages go one after another and never overtake each other. The k-th of them arrives
its latency after its last bit has left, but no sooner than the one before it. Its latency is that of the time
at which it is sent; its rate is that of every moment at which it moves. States are read lazily: of a link
that moves nothing, nobody asks for the state, and no event waits.

Under TCP a message moves with its headers, one window after the other: the next may leave a round trip after
the last one's first byte. While it waits for that the stream is taken, and the server's link is not.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from simfl.engine.environment import Environment
from simfl.engine.fair_link import FairLink, Flow
from simfl.population.links import Links
from simfl.population.tcp import Connection, Tcp
from simfl.population.timelines import FOR_EVER
from simfl.virtual_time import NS, nanoseconds

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

    def sent(self) -> object:
        """Hear that the last bit has left."""

    def arrived(self) -> object:
        """Hear of its arrival, a latency later."""

    def broke(self, moved_bytes: int, /) -> object:
        """Hear that it broke off."""


class UserLink:
    """One direction of a user's link: transfers in order, one at a time.

    jitter_s: the k-th is what the k-th message's latency is longer, if any is; peers: what relayed transfers
    pass in place of the server's link, if they do; tcp: how the user's connections begin, if that counts.
    """

    __slots__ = (
        "_epoch", "_follow_at", "_last", "_most_bps", "_moved", "_since", "_window", "active", "connection",
        "env", "flying", "heard", "jitter_s", "latency_ns", "latency_s", "links", "paused", "peers", "queue",
        "rate", "shared", "until", "up", "user",
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
        self._follow_at = 0
        self.paused = False
        self.queue: list[Transfer] = []
        self.flying: list[Transfer] = []
        self.active: tuple[Transfer, FairLink, Flow | None] | None = None  # no flow while TCP waits
        self.heard: Callable[[Transfer, int | None], None] | None = None
        self._epoch = 0
        self._last = 0
        # Of TCP: bytes of the next window, 0 where none is waited for; bytes on the wire of those that have
        # left; when the last one began; the rate of one that opens no further, 0 where it does.
        self._window = self._moved = self._since = self._most_bps = 0

    def send(self, transfer: Transfer) -> None:
        if self.env.now >= self.until:
            self._look()
        if self.jitter_s is None:
            transfer.latency_ns = self.latency_ns
        else:
            transfer.latency_ns = nanoseconds(self.latency_s + next(self.jitter_s))
        if self.active is None and not self.queue and not self.paused:
            self._begin(transfer)
        else:
            self.queue.append(transfer)

    def pause(self) -> None:
        """Pause while the user is offline: messages wait, on a downlink also those in the air."""
        self.paused = True
        self.queue[:0] = self._interrupt()

    def resume(self) -> None:
        self.paused = False
        self._next()

    @property
    def settling_ns(self) -> int:
        """Time until all that has left is there, at least a latency: the end of a connection is as slow as a
        message."""
        if self.env.now >= self.until:
            self._look()
        return max(self.latency_ns, self._last - self.env.now)

    def close(self) -> None:
        self._break()

    def cut(self) -> None:
        """Drop what has not left yet, as the user is lost; on a downlink also what is in the air."""
        self._interrupt()
        for transfer in self.queue:
            transfer.broke(0)
        self.queue.clear()

    def _interrupt(self) -> list[Transfer]:
        """Break off, and return in order, the transfers that do not go on while the user is offline."""
        broken = self._break()
        if self.connection is not None:
            self.connection.broke()
        if not self.up:
            self._epoch += 1
            self._last = 0  # what is to be sent again arrives anew
            for transfer in self.flying:
                transfer.broke(transfer.size_bytes)
            broken = [*self.flying, *broken]
            self.flying.clear()
        return broken

    def _break(self) -> list[Transfer]:
        if self.active is None:
            return []
        (transfer, link, flow), self.active = self.active, None
        moved_bytes = self._moved + (0 if flow is None else link.stop(flow))
        if self.heard is not None:
            self.heard(transfer, moved_bytes)
        if moved_bytes and self.connection is not None:  # of the message itself
            moved_bytes = transfer.size_bytes * moved_bytes // self._on_wire(transfer)
        transfer.broke(moved_bytes)
        return [transfer]

    def _on_wire(self, transfer: Transfer) -> int:
        size = transfer.size_bytes
        return size if self.connection is None else self.connection.tcp.wire_bytes(size)

    def _next(self) -> None:
        if self.active is None and self.queue and not self.paused:
            self._begin(self.queue.pop(0))

    def _begin(self, transfer: Transfer) -> None:
        if self.env.now >= self.until:
            self._look()
        link = self.peers if transfer.relayed else self.shared
        if self.heard is not None:
            self.heard(transfer, None)
        self._moved = self._most_bps = 0
        if self.connection is not None:
            self._window = self.connection.begin(transfer.size_bytes, self.env.now, 2 * self.latency_ns)
        self._move(transfer, link)

    def _move(self, transfer: Transfer, link: FairLink) -> None:
        """Move the next window of a message, or all the rest where nothing will be waited for."""
        size, done = self._on_wire(transfer) - self._moved, self._sent
        if self._window:
            assert self.connection is not None
            window = self.connection.tcp.wire_bytes(self._window)
            if size > window and 8 * NS * window < 2 * self.latency_ns * self.rate:
                size, done = window, partial(self._left, window)
                self._since = self.env.now
        self.active = (transfer, link, link.start(size, self._cap, done))
        if self.until < FOR_EVER:
            self._follow()

    @property
    def _cap(self) -> int:
        return min(self.rate, self._most_bps or self.rate)

    def _left(self, window_bytes: int) -> None:
        """Double the TCP window after one was sent, or leave slow start; wait for its acknowledgement."""
        assert self.active is not None
        assert self.connection is not None
        now, rtt_ns, tcp = self.env.now, max(1, 2 * self.latency_ns), self.connection.tcp
        queued_ns = now - self._since - 8 * NS * window_bytes // max(1, self.rate)
        self._moved += window_bytes
        if tcp.stays_open(self._window, queued_ns, rtt_ns):
            self._most_bps = max(1, 8 * NS * tcp.wire_bytes(2 * self._window) // rtt_ns)
        self._window = 0 if self._most_bps else 2 * self._window
        self.active = waiting = (*self.active[:2], None)
        self.env.at(max(now, self._since + rtt_ns), partial(self._acknowledged, waiting))

    def _acknowledged(self, waiting: tuple[Transfer, FairLink, None]) -> None:
        if self.active is waiting:  # it was not broken off
            if self.env.now >= self.until:
                self._look()
            self._move(*waiting[:2])

    def _look(self) -> None:
        """Take the link's state from now on, also for the transfer that is moving."""
        up_bps, down_bps, self.latency_s, self.until = self.links(self.user, self.env.now)
        self.rate = up_bps if self.up else down_bps
        self.latency_ns = nanoseconds(self.latency_s)
        if self.active is not None and (flow := self.active[2]) is not None:
            self.active[1].change(flow, self._cap)
            self._follow()

    def _follow(self) -> None:
        """Look again when the state ends, unless nothing moves then; one event a state is enough."""
        if self._follow_at < self.until < FOR_EVER:
            self._follow_at = self.until
            self.env.at(self.until, self._end_state)

    def _end_state(self) -> None:
        if self.active is not None and self.env.now >= self.until:  # and nobody has looked this nanosecond
            self._look()

    def _sent(self) -> None:
        assert self.active is not None
        transfer, self.active = self.active[0], None
        if self.heard is not None:
            self.heard(transfer, self._on_wire(transfer))
        if self.connection is not None:
            self.connection.sent(self.env.now)
        self.flying.append(transfer)
        self._last = max(self._last, self.env.now + transfer.latency_ns)
        self.env.at(self._last, partial(self._arrive, self._epoch))
        transfer.sent()
        if self.queue:
            self._next()

    def _arrive(self, epoch: int) -> None:
        if epoch == self._epoch:
            self.flying.pop(0).arrived()


class ServerLink(FairLink):
    """One direction of the server's link. rates: at a time, its bit/s and until when they surely stay."""

    def __init__(self, env: Environment, rates: Callable[[int], tuple[int, int]]) -> None:
        super().__init__(env, 0)
        self.rates = rates
        self.until = 0

    def start(self, size_bytes: int, cap_bps: int, done: Callable[[], None]) -> Flow:
        if self.env.now >= self.until:
            self._look()
        return super().start(size_bytes, cap_bps, done)

    def _look(self) -> None:
        rate_bps, self.until = self.rates(self.env.now)
        self.rate(rate_bps)
        if self.until < FOR_EVER:
            self.env.at(self.until, partial(self._end_state, self.until))

    def _end_state(self, until: int) -> None:
        if self.busy and until == self.until:  # and nobody has looked this nanosecond
            self._look()


class Network:
    """All links: of users, whose states are a function of the time, and the server's in each direction.

    links: of a user at a time; server: at a time, its up and down rates and until when they surely stay.
    jitter: what the latency of the k-th message of a (user, up) is longer, in seconds; none unless given.
    direct: relayed transfers do not pass the server's link, only the two users' own. radio: called as (user,
    up, transfer, None) when a transfer begins to move on a user's link, and with the bytes that it has moved
    in place of None when its last bit has left or it breaks off. tcp: of a user's connections, if it counts.
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
        made = self._links.get((user, up))
        if made is None:
            more_s = None if self._jitter is None else self._jitter(user, up)
            shared, peers = self._shared[up], self._peers[up]
            made = UserLink(user, up, self._states, shared, more_s, peers, self._tcp(user))
            made.paused = user in self._paused
            made.heard = None if self.radio is None else partial(self.radio, user, up)
            self._links[user, up] = made
        return made

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
        return any(link.active or link.queue or link.flying for link in self._made(user))

    def _made(self, user: int) -> list[UserLink]:
        links = (self._links.get((user, up)) for up in (True, False))
        return [link for link in links if link is not None]

    def close(self) -> None:
        for link in self._links.values():
            link.close()
