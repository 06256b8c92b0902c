"""Links: each user has one ordered stream in each direction; the server's link is shared.

Law: at any instant the concurrent transfers of one direction share the server's rate max-min fairly, each
capped by its user's rate (a fluid model). A user's own messages go one after another, so they never
overtake each other. A free link moves B bytes in 8 B / rate, rounded once to the nanosecond; rates and
amounts are integers, so shares are exact to 2^-20 bit/s and nothing drifts.

All transfers with the same cap move alike, so a group needs one counter (bits moved per transfer) and a
heap of finishing marks: O(log n) a start or end.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from simfl.engine.virtual import NS, Environment, nanoseconds

SCALE = 2**20


@dataclass(slots=True, eq=False)
class Flow:
    """A transfer that is moving: `mark` is its group's counter when it will be done."""

    group: Group
    start: int
    mark: int
    done: Callable[[], None]
    live: bool = True


@dataclass(slots=True, eq=False)
class Group:
    """The moving transfers of one cap: their common rate and how much each has moved so far."""

    cap: int
    rate: int = 0
    moved: int = 0
    live: int = 0
    heap: list[tuple[int, int, Flow]] = field(default_factory=list)


class SharedLink:
    """One direction of the server's link (bit/s)."""

    def __init__(self, env: Environment, rate_bps: int) -> None:
        self.env = env
        self.rate = rate_bps * SCALE
        self.groups: dict[int, Group] = {}
        self._then = 0
        self._armed: int | None = None
        self._count = 0

    def start(self, size_bytes: int, cap_bps: int, done: Callable[[], None]) -> Flow:
        """Begin a transfer; `done` is called when its last bit has moved."""
        self._advance()
        group = self.groups.setdefault(cap_bps, Group(cap_bps * SCALE))
        if group.live == 0:
            group.moved, group.heap = 0, []
        flow = Flow(group, group.moved, group.moved + 8 * size_bytes * NS * SCALE, done)
        self._count += 1
        heapq.heappush(group.heap, (flow.mark, self._count, flow))
        group.live += 1
        self._share()
        return flow

    def stop(self, flow: Flow) -> int:
        """Break a transfer off; returns the whole bytes that it moved."""
        self._advance()
        flow.live = False
        flow.group.live -= 1
        self._share()
        return (min(flow.mark, flow.group.moved) - flow.start) // (8 * NS * SCALE)

    def _advance(self) -> None:
        elapsed, self._then = self.env.now - self._then, self.env.now
        if elapsed:
            for group in self.groups.values():
                if group.live:
                    group.moved += group.rate * elapsed

    def _share(self) -> None:
        """Max-min fair: fill from the smallest cap up; what is left is shared equally."""
        busy = sorted((g for g in self.groups.values() if g.live), key=lambda g: g.cap)
        left, flows = self.rate, sum(g.live for g in busy)
        for group in busy:
            group.rate = min(group.cap, left // flows)
            left -= group.rate * group.live
            flows -= group.live
        self._arm(busy)

    def _arm(self, busy: list[Group]) -> None:
        """One pending event: the earliest end. If that moves back, the event fires in vain and arms anew."""
        soonest: int | None = None
        for group in busy:
            while not group.heap[0][2].live:
                heapq.heappop(group.heap)
            left = max(0, group.heap[0][0] - group.moved)
            at = self.env.now + (2 * left + group.rate) // (2 * group.rate)
            soonest = at if soonest is None else min(soonest, at)
        if soonest is not None and (self._armed is None or soonest < self._armed):
            self._armed = soonest
            self.env.at(soonest, partial(self._fire, soonest))

    def _fire(self, at: int) -> None:
        if at != self._armed:
            return
        self._armed = None
        self._advance()
        finished: list[Flow] = []
        for group in self.groups.values():
            while group.heap and group.live:
                mark, _, flow = group.heap[0]
                if flow.live and 2 * (mark - group.moved) > group.rate:  # over half a nanosecond left
                    break
                heapq.heappop(group.heap)
                if flow.live:
                    flow.live = False
                    group.live -= 1
                    finished.append(flow)
        self._share()
        for flow in finished:
            flow.done()


@dataclass(slots=True, eq=False)
class Transfer:
    """A message on its way: `sent` when its last bit has left, `arrived` a latency later.

    `broke(moved_bytes)` when it broke off; a transfer that waits for its receiver starts again from 0.
    """

    size_bytes: int
    sent: Callable[[], None]
    arrived: Callable[[], None]
    broke: Callable[[int], object]


class UserLink:
    """One direction of a user's link: transfers in order, one at a time."""

    def __init__(self, shared: SharedLink, rate_bps: int, latency_ns: int, up: bool) -> None:
        self.env = shared.env
        self.shared = shared
        self.rate = rate_bps
        self.latency = latency_ns
        self.up = up
        self.paused = False
        self.queue: deque[Transfer] = deque()
        self.flying: deque[Transfer] = deque()
        self.active: tuple[Transfer, Flow] | None = None
        self._epoch = 0

    def send(self, transfer: Transfer) -> None:
        """Queue a transfer behind the earlier ones."""
        self.queue.append(transfer)
        self._next()

    def pause(self) -> None:
        """The user went offline: what is not there yet waits (downlink: also what is in the air)."""
        self.paused = True
        returned = self._break()
        if not self.up:
            self._epoch += 1
            for transfer in self.flying:
                transfer.broke(transfer.size_bytes)
            returned = [*self.flying, *returned]
            self.flying.clear()
        self.queue.extendleft(reversed(returned))

    def resume(self) -> None:
        """The user is online again."""
        self.paused = False
        self._next()

    @property
    def settling_ns(self) -> int:
        """How long until what has left is there: a closed connection is noticed no sooner."""
        return self.latency if self.flying else 0

    def close(self) -> None:
        """The run is over: report what has moved of the transfer in progress."""
        self._break()

    def cut(self) -> None:
        """The sender is lost: what has not left yet is gone."""
        self._break()
        for transfer in self.queue:
            transfer.broke(0)
        self.queue.clear()

    def _break(self) -> list[Transfer]:
        if self.active is None:
            return []
        (transfer, flow), self.active = self.active, None
        transfer.broke(self.shared.stop(flow))
        return [transfer]

    def _next(self) -> None:
        if self.active is None and self.queue and not self.paused:
            transfer = self.queue.popleft()
            flow = self.shared.start(transfer.size_bytes, self.rate, self._sent)
            self.active = (transfer, flow)

    def _sent(self) -> None:
        assert self.active is not None
        transfer, self.active = self.active[0], None
        self.flying.append(transfer)
        self.env.at(self.env.now + self.latency, partial(self._arrive, self._epoch))
        transfer.sent()
        self._next()

    def _arrive(self, epoch: int) -> None:
        if epoch == self._epoch:
            self.flying.popleft().arrived()


class Network:
    """All links. `users` share rates and latency; the server has a link in each direction."""

    def __init__(
        self,
        env: Environment,
        up_mbps: float,
        down_mbps: float,
        latency_s: float,
        server_up_mbps: float,
        server_down_mbps: float,
    ) -> None:
        self._rates = {True: round(up_mbps * 1e6), False: round(down_mbps * 1e6)}
        self._latency = nanoseconds(latency_s)
        # what users send up comes in through the server's downlink, and the other way round
        self._shared = {
            True: SharedLink(env, round(server_down_mbps * 1e6)),
            False: SharedLink(env, round(server_up_mbps * 1e6)),
        }
        self._links: dict[tuple[int, bool], UserLink] = {}

    def link(self, user: int, up: bool) -> UserLink:
        """A user's link in one direction; made when it is first used."""
        if (user, up) not in self._links:
            made = UserLink(self._shared[up], self._rates[up], self._latency, up)
            self._links[user, up] = made
        return self._links[user, up]

    def close(self) -> None:
        """The run is over."""
        for link in self._links.values():
            link.close()
