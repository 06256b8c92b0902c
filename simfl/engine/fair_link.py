"""Fair-share link: one direction of the server's link, shared max-min fairly; O(log n) a start, end or stop.

Invariant: at any instant there is a level such that a transfer whose user is slower moves at its user's rate
(its cap) and all others move at the level, which uses the link up (a fluid model; progressive filling,
Bertsekas and Gallager, "Data Networks", section 6.5.2). A free link moves B bytes in 8 B / rate, rounded once
to the nanosecond, halves up; rates and amounts are integers, so shares are exact to 2^-20 bit/s and nothing
drifts.

All transfers with the same cap move alike, so a group needs one counter (what each has moved) and a heap of
finishing marks. Groups above the level all count alike too. So an event changes one group, and those that
the level passes: where a group runs is kept as an offset to one of two counters, cap x time or the level's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from operator import attrgetter

from simfl.engine.environment import Environment
from simfl.virtual_time import NS

SCALE = 2**20
BYTE = 8 * NS * SCALE  # a byte as counters count: 2^-20 bit/s x nanoseconds


@dataclass(slots=True, eq=False)
class Flow:
    """A transfer that is moving, from `start` to `mark` of its group's counter."""

    group: Group
    start: int
    mark: int
    done: Callable[[], None]
    live: bool = True


@dataclass(slots=True, eq=False)
class Group:
    """The moving transfers of one cap. Each has moved `offset` more than the counter says that they run by:
    cap x time where `capped`, otherwise the level's. `entry` is the valid entry among the next ends.
    """

    cap: int
    capped: bool
    offset: int = 0
    live: int = 0
    entry: int = 0
    heap: list[tuple[int, int, Flow]] = field(default_factory=list)


class FairLink:
    """One direction of the server's link (bit/s)."""

    def __init__(self, env: Environment, rate_bps: int) -> None:
        self.env = env
        self._groups: dict[int, Group] = {}
        self._busy: list[Group] = []  # by cap: the first `_capped` of them move at their caps
        self._capped = 0
        self._spare = rate_bps * SCALE  # what those leave of the rate,
        self._sharing = 0  # and how many transfers share it
        self._level = 0
        self._moved = 0  # at the level, since ever
        self._then = 0
        self._ends: list[tuple[int, int, Group]] = []  # next ends of capped groups, nanoseconds
        self._marks: list[tuple[int, int, Group]] = []  # and of the others, by the level's counter
        self._armed: int | None = None
        self._count = 0

    def start(self, size_bytes: int, cap_bps: int, done: Callable[[], None]) -> Flow:
        """Begin a transfer; `done` is called when its last bit has moved."""
        self._advance()
        cap = cap_bps * SCALE
        group = self._groups.get(cap) or self._open(cap)
        moved = self._counter(group) + group.offset
        flow = Flow(group, moved, moved + size_bytes * BYTE, done)
        heappush(group.heap, (flow.mark, self._next(), flow))
        self._weigh(group, 1)
        first = group.heap[0][2] is flow
        if first:
            self._announce(group)
        self._rebalance()
        if first:  # otherwise no end moves forward, since the level does not rise
            self._arm()
        return flow

    def stop(self, flow: Flow) -> int:
        """Break a transfer off; returns the whole bytes that it moved."""
        self._advance()
        group = flow.group
        moved = min(flow.mark, self._counter(group) + group.offset)
        self._leave(flow)
        self._rebalance()
        self._arm()
        return (moved - flow.start) // BYTE

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _advance(self) -> None:
        now = self.env.now
        self._moved += self._level * (now - self._then)
        self._then = now

    # -- groups
    def _counter(self, group: Group) -> int:
        return group.cap * self._then if group.capped else self._moved

    def _open(self, cap: int) -> Group:
        place = self._place(cap)
        all_capped = self._capped == len(self._busy)  # then it begins so too, and changes over if it must
        group = self._groups[cap] = Group(cap, all_capped or place < self._capped)
        self._busy.insert(place, group)
        self._capped += group.capped
        return group

    def _place(self, cap: int) -> int:
        if len(self._busy) <= 1:  # most networks have links of one rate
            return int(bool(self._busy) and self._busy[0].cap < cap)
        return bisect_left(self._busy, cap, key=attrgetter("cap"))

    def _leave(self, flow: Flow) -> None:
        group = flow.group
        flow.live = False
        self._weigh(group, -1)
        if not group.live:
            del self._groups[group.cap]
            del self._busy[self._place(group.cap)]
            self._capped -= group.capped
            group.entry = 0
        elif group.heap[0][2] is flow:
            self._announce(group)

    def _weigh(self, group: Group, more: int) -> None:
        group.live += more
        if group.capped:
            self._spare -= more * group.cap
        else:
            self._sharing += more

    def _announce(self, group: Group) -> None:
        """Note the end of the group's next transfer, at its present pace."""
        while not group.heap[0][2].live:
            heappop(group.heap)
        mark = group.heap[0][0] - group.offset
        group.entry = self._next()
        if group.capped:
            heappush(self._ends, (rounded(mark, group.cap), group.entry, group))
        else:
            heappush(self._marks, (mark, group.entry, group))

    # -- the level
    def _rebalance(self) -> None:
        """Find the level, and move the groups that it passes to the other side of it."""
        busy = self._busy
        while self._capped and busy[self._capped - 1].cap * self._sharing > self._spare:
            self._capped -= 1
            self._change(busy[self._capped])
        while self._capped < len(busy) and busy[self._capped].cap * self._sharing <= self._spare:
            self._change(busy[self._capped])
            self._capped += 1
        self._level = self._spare // self._sharing if self._sharing else 0

    def _change(self, group: Group) -> None:
        live, moved = group.live, self._counter(group) + group.offset
        self._weigh(group, -live)
        group.capped = not group.capped
        self._weigh(group, live)
        group.offset = moved - self._counter(group)
        self._announce(group)

    # -- ends
    def _soonest(self) -> tuple[int, Group] | None:
        """Return the end of the next transfer if nothing changes, and its group."""
        ends, marks = self._ends, self._marks
        while ends and ends[0][2].entry != ends[0][1]:
            heappop(ends)
        while marks and marks[0][2].entry != marks[0][1]:
            heappop(marks)
        soonest = (ends[0][0], ends[0][2]) if ends else None
        if marks:
            at = self._then + rounded(max(0, marks[0][0] - self._moved), self._level)
            if soonest is None or at < soonest[0]:
                return at, marks[0][2]
        return soonest

    def _arm(self) -> None:
        """One pending event: the earliest end. If that moves back, the event fires in vain and arms anew."""
        soonest = self._soonest()
        if soonest is not None and (self._armed is None or soonest[0] < self._armed):
            self._armed = soonest[0]
            self.env.at(soonest[0], partial(self._fire, soonest[0]))

    def _fire(self, at: int) -> None:
        if at != self._armed:
            return
        self._armed = None
        self._advance()
        finished: list[Flow] = []
        while (soonest := self._soonest()) is not None and soonest[0] <= at:
            finished.append(soonest[1].heap[0][2])
            self._leave(finished[-1])
        self._rebalance()
        self._arm()
        for flow in finished:
            flow.done()


def rounded(amount: int, rate: int) -> int:
    """amount / rate, halves up."""
    return (2 * amount + rate) // (2 * rate)
