"""Clocks: three ways to give a step its duration.

    measured   time of the step's work on this machine (CPU time, a device's kernels) x slowdown / cores,
               with caches as the step before left them, or cold
    modelled   counted work x seconds per operation of a device profile x slowdown / cores
    recorded   what an earlier run's trace says, by the kind of step, checked against what happens now

Each segment is rounded once, to integer nanoseconds. `cores` divides the server's work only; the
per-message overhead is added by the caller and divided by nothing.
"""

import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from simfl.dataplane.work import Segment
from simfl.errors import RunFailed
from simfl.trace.codes import StepsDone
from simfl.trace.rows import Row, Step

Spans = tuple[tuple[str, int], ...]
"""(phase, nanoseconds) of each segment of a step."""


class ReplayError(RunFailed):
    """The run is not the recorded one: names the step and both sides."""


COLD_BYTES, CACHE_LINE = 32 * 2**20, 64  # more than a core's share of the caches
PAUSE_S = 0.02  # after 2 ms a step still takes less than in a process that waited for its message
MAX_REMEMBERED = 64  # pieces of work of which a segment's sum is remembered

Key = tuple[int, int, str, str, str]
"""(round, party, lane, call, what) of a step."""
LaneKey = tuple[int, int, str]
"""(round, party, lane) of a step."""


class Clock(ABC):
    """Source of the durations of a step's segments."""

    measures = False
    """Durations are measured on this machine, so a step's work must run alone."""
    timed_by: str | None = None
    """Devices of the machine on which durations were measured, and the timer of each."""

    def prepare(self) -> None:
        """Make the machine ready for a step, before its time begins."""

    @abstractmethod
    def work_ns(self, segment: Segment, slowdown: float) -> int:
        """Return the duration of one segment's work, rounded once."""

    def spans(
        self, key: Key, segments: Sequence[Segment], slowdown: float, overhead_ns: int, cut: bool
    ) -> Spans:
        """Return the duration of each segment of a step.

        Args:
            key: Identifies the step.
            segments: Its work, by phase.
            slowdown: slowdown / cores.
            overhead_ns: Of the message that the step receives; it belongs to the first segment.
            cut: Only the first half of the work is done.
        """
        part = 2 if cut else 1
        first = segments[0]
        span = (first.phase, self.work_ns(first, slowdown) // part + overhead_ns)
        if len(segments) == 1:
            return (span,)
        return (span, *[(s.phase, self.work_ns(s, slowdown) // part) for s in segments[1:]])

    def steps(
        self,
        lane_key: LaneKey,
        total_steps: int,
        of: Callable[[int], Segment],
        slowdown: float,
        within_ns: int,
    ) -> int | None:
        """Return the number of minibatches that a training has the time for.

        Args:
            lane_key: Of the training's step, the next one of the lane.
            total_steps: Minibatches of the whole training, one or more.
            of: Returns the segment of a training of a number of minibatches.
            slowdown: Of the device.
            within_ns: Bound of the step's duration.

        Returns:
            At least one; None where only the work itself can determine it.
        """

        def ns(steps: int) -> int:
            return self.work_ns(of(steps), slowdown)

        if ns(total_steps) <= within_ns:  # as for most users
            return total_steps
        return max(1, bisect_right(range(1, total_steps), within_ns, key=ns))


class MeasuredClock(Clock):
    """The time of the step's work on this machine.

    Args:
        timed_by: Devices and timers of the machine, for `Clock.timed_by`.
        cold: Pause and fill the caches with other data before each step: a simulation executes steps back to
            back, where a device waits in between.
    """

    measures = True

    def __init__(self, timed_by: str, cold: bool = False) -> None:
        self.timed_by = f"{timed_by} with cold caches" if cold else timed_by
        self._other_data = np.zeros(COLD_BYTES, np.uint8) if cold else None

    def prepare(self) -> None:
        if self._other_data is not None:
            time.sleep(PAUSE_S)
            self._other_data[::CACHE_LINE].sum()

    def steps(
        self,
        lane_key: LaneKey,
        total_steps: int,
        of: Callable[[int], Segment],
        slowdown: float,
        within_ns: int,
    ) -> None:
        return None

    def work_ns(self, segment: Segment, slowdown: float) -> int:
        return round(segment.taken_ns * slowdown)


class ConstantClock(Clock):
    """A millisecond for every piece of work: for runs whose durations are not known beforehand."""

    def work_ns(self, segment: Segment, slowdown: float) -> int:
        return 10**6


class ModelledClock(Clock):
    """Counted work by a device profile, in seconds per operation."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self.ns = {kind: value * 1e9 for kind, value in seconds.items()}
        self._seen: dict[Spans, Spans] = {}
        self._weighed: dict[tuple[tuple[str, int], ...], float] = {}

    def spans(
        self, key: Key, segments: Sequence[Segment], slowdown: float, overhead_ns: int, cut: bool
    ) -> Spans:
        spans = super().spans(key, segments, slowdown, overhead_ns, cut)
        return self._seen.setdefault(spans, spans)  # a device does the same again and again: kept once

    def work_ns(self, segment: Segment, slowdown: float) -> int:
        counted = tuple(segment.counted)
        ns = self._weighed.get(counted)
        if ns is None:
            work = segment.work
            ns = sum([work[kind] * self.ns[kind] for kind in sorted(work)])
            if len(counted) < MAX_REMEMBERED:  # users do the same again and again
                self._weighed[counted] = ns
        return round(slowdown * ns)


class Recording:
    """The steps of an earlier run: by (round, party, lane), and there by call and what, first in, first out.
    For in real time two messages come in either order.

    running: steps that were in progress when the recording ends, with their whole durations.
    """

    def __init__(self, trace: Iterable[Row], running: Iterable[tuple[Key, Spans]] = ()) -> None:
        self._steps: dict[LaneKey, deque[tuple[tuple[str, str], Spans]]] = {}
        for row in trace:
            if isinstance(row, Step):
                *first, (phase, ns) = row.segments
                whole = (*first, (phase, ns + row.left))  # for the same loss to break it off again
                self._note((row.round, row.party, row.lane, row.call, row.what), whole)
        for key, spans in running:
            self._note(key, spans)

    def _note(self, key: Key, spans: Spans) -> None:
        self._steps.setdefault(key[:3], deque()).append((key[3:], spans))

    def what(self, lane_key: LaneKey) -> str | None:
        """Return `what` of the next step there; None if there are no more."""
        steps = self._steps.get(lane_key)
        return steps[0][0][1] if steps else None

    def next(self, key: Key) -> Spans | None:
        """Take the durations of a lane's next step of this kind; None if no more steps of any are there.

        Raises:
            ReplayError: there are others.
        """
        steps = self._steps.get(key[:3])
        if not steps:
            return None
        for k, (which, spans) in enumerate(steps):  # most often the first
            if which == key[3:]:
                del steps[k]
                return spans
        raise ReplayError(f"{_named(key)}, recorded {' '.join(steps[0][0])}")


class Recorded(Clock):
    """Durations of the steps of an earlier run's trace; after its end, those of `fallback`, if given."""

    def __init__(self, recording: Recording, timed_by: str | None, fallback: Clock | None = None) -> None:
        self._recording, self._fallback, self.timed_by = recording, fallback, timed_by
        self.measures = fallback is not None and fallback.measures

    def prepare(self) -> None:
        if self._fallback is not None:
            self._fallback.prepare()

    def work_ns(self, segment: Segment, slowdown: float) -> int:
        raise TypeError("a recording knows steps, not work")  # pragma: no cover

    def spans(
        self, key: Key, segments: Sequence[Segment], slowdown: float, overhead_ns: int, cut: bool
    ) -> Spans:
        spans = self._recording.next(key)
        if spans is not None:
            return spans
        if self._fallback is None:
            raise ReplayError(f"{_named(key)}, which the recording does not have")
        return self._fallback.spans(key, segments, slowdown, overhead_ns, cut)

    def steps(
        self,
        lane_key: LaneKey,
        total_steps: int,
        of: Callable[[int], Segment],
        slowdown: float,
        within_ns: int,
    ) -> int | None:
        what = self._recording.what(lane_key)
        if what is None and self._fallback is not None:
            return self._fallback.steps(lane_key, total_steps, of, slowdown, within_ns)
        done = StepsDone.read(what or "")
        # Where that cannot be, the step gets another `what` than the recorded one, and `spans` refuses it.
        return total_steps if done is None else min(done.steps, total_steps)


def _named(key: Key) -> str:
    return f"round {key[0]}, party {key[1]}: now {' '.join(key[3:]).rstrip()}"
