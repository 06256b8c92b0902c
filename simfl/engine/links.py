"""Links: each user has one ordered stream in each direction; the server's link is shared.

Where users reach each other directly, what they have for each other passes their own links only.

Invariant: a user's own messages go one after another and never overtake each other. The k-th of them arrives
its latency after its last bit has left, but no sooner than the one before it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from simfl.engine.environment import Environment
from simfl.engine.fair_link import FairLink, Flow
from simfl.population.links import Links
from simfl.virtual_time import nanoseconds

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
    pass in place of the server's link, if they do.
    """

    __slots__ = (
        "_epoch", "_last", "active", "env", "flying", "heard", "jitter_s", "latency_ns", "latency_s",
        "paused", "peers", "queue", "rate", "shared", "up",
    )  # fmt: skip

    def __init__(
        self,
        shared: FairLink,
        rate_bps: int,
        latency_s: float,
        jitter_s: Iterator[float] | None,
        up: bool,
        peers: FairLink | None = None,
    ) -> None:
        self.env = shared.env
        self.shared = shared
        self.peers = peers or shared
        self.rate = rate_bps
        self.latency_s = latency_s
        self.latency_ns = nanoseconds(latency_s)
        self.jitter_s = jitter_s
        self.up = up
        self.paused = False
        self.queue: list[Transfer] = []
        self.flying: list[Transfer] = []
        self.active: tuple[Transfer, FairLink, Flow] | None = None
        self.heard: Callable[[Transfer, int | None], None] | None = None
        self._epoch = 0
        self._last = 0

    def send(self, transfer: Transfer) -> None:
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
        """Time until all that has left is there, at least a latency: a closed link is noticed no sooner."""
        return max(self.latency_ns, self._last - self.env.now) if self.flying else 0

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
        moved_bytes = link.stop(flow)
        if self.heard is not None:
            self.heard(transfer, moved_bytes)
        transfer.broke(moved_bytes)
        return [transfer]

    def _next(self) -> None:
        if self.active is None and self.queue and not self.paused:
            self._begin(self.queue.pop(0))

    def _begin(self, transfer: Transfer) -> None:
        link = self.peers if transfer.relayed else self.shared
        if self.heard is not None:
            self.heard(transfer, None)
        self.active = (transfer, link, link.start(transfer.size_bytes, self.rate, self._sent))

    def _sent(self) -> None:
        assert self.active is not None
        transfer, self.active = self.active[0], None
        if self.heard is not None:
            self.heard(transfer, transfer.size_bytes)
        self.flying.append(transfer)
        self._last = max(self._last, self.env.now + transfer.latency_ns)
        self.env.at(self._last, partial(self._arrive, self._epoch))
        transfer.sent()
        if self.queue:
            self._next()

    def _arrive(self, epoch: int) -> None:
        if epoch == self._epoch:
            self.flying.pop(0).arrived()


class Network:
    """All links. `users` share rates and latency; the server has a link in each direction.

    jitter: what the latency of the k-th message of a (user, up) is longer, in seconds; none unless given.
    direct: relayed transfers do not pass the server's link, only the two users' own. radio: called as (user,
    up, transfer, None) when a transfer begins to move on a user's link, and with the bytes that it has moved
    in place of None when its last bit has left or it breaks off.
    """

    radio: Callable[[int, bool, Transfer, int | None], None] | None = None

    def __init__(
        self,
        env: Environment,
        links: Links,
        server: Callable[[int], tuple[int, int, int]],
        jitter: Callable[[int, bool], Iterator[float] | None] | None = None,
        direct: bool = False,
    ) -> None:
        self._states = links
        self._jitter = jitter
        # what users send up comes in through the server's downlink, and the other way round
        self._shared = {
            True: FairLink(env, server(0)[1]),
            False: FairLink(env, server(0)[0]),
        }
        self._peers = {up: FairLink(env, UNBOUNDED) if direct else self._shared[up] for up in (True, False)}
        self._links: dict[tuple[int, bool], UserLink] = {}
        self._paused: set[int] = set()

    def link(self, user: int, up: bool) -> UserLink:
        """Return a user's link in one direction, made when it is first used."""
        made = self._links.get((user, up))
        if made is None:
            more_s = None if self._jitter is None else self._jitter(user, up)
            up_bps, down_bps, latency_s, _ = self._states(user, 0)
            rate = up_bps if up else down_bps
            made = UserLink(self._shared[up], rate, latency_s, more_s, up, self._peers[up])
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
