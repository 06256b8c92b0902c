"""How long a step takes: three clocks.

    measured   CPU time of the step on this machine x slowdown / cores
    modelled   counted work x seconds per operation of a device profile x slowdown / cores
    recorded   what an earlier run's trace says, checked against what happens now

Each segment is rounded once, to integer nanoseconds. `cores` divides the server's work only; the
per-message overhead is added by the caller and divided by nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence

from simfl.errors import RunFailed
from simfl.protocols.ops import Segment
from simfl.trace import Step, Trace

Spans = tuple[tuple[str, int], ...]
"""(phase, nanoseconds) of each segment of a step."""


class ReplayError(RunFailed):
    """The run is not the recorded one: names the step and both sides."""


SHORT = 64
"""Pieces of work of which a segment's sum is remembered."""

Key = tuple[int, int, str, str, str]
"""(round, party, lane, call, what) of a step."""


class Clock(ABC):
    """Gives a step's segments their nanoseconds. timing: while they are done, nothing else may be."""

    timing = False

    @abstractmethod
    def work_ns(self, segment: Segment, speed: float) -> int:
        """The duration of one segment's work, rounded once."""

    def spans(
        self, key: Key, segments: Sequence[Segment], speed: float, overhead_ns: int, cut: bool
    ) -> Spans:
        """The duration of each segment of a step.

        Args:
            key: which step it is.
            speed: slowdown / cores.
            overhead_ns: of the message that the step receives; it belongs to the first segment.
            cut: only the first half of the work is done.
        """
        part = 2 if cut else 1
        first = segments[0]
        span = (first.phase, self.work_ns(first, speed) // part + overhead_ns)
        if len(segments) == 1:
            return (span,)
        return (span, *[(s.phase, self.work_ns(s, speed) // part) for s in segments[1:]])


class Measured(Clock):
    """What the step really took here."""

    timing = True

    def work_ns(self, segment: Segment, speed: float) -> int:
        return round(segment.cpu_ns * speed)


class Modelled(Clock):
    """What the profile says that the counted work takes (seconds per operation)."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self.ns = {kind: value * 1e9 for kind, value in seconds.items()}
        self._seen: dict[Spans, Spans] = {}
        self._weighed: dict[tuple[tuple[str, int], ...], float] = {}

    def spans(
        self, key: Key, segments: Sequence[Segment], speed: float, overhead_ns: int, cut: bool
    ) -> Spans:
        spans = super().spans(key, segments, speed, overhead_ns, cut)
        return self._seen.setdefault(spans, spans)  # a device does the same again and again: kept once

    def work_ns(self, segment: Segment, speed: float) -> int:
        counted = tuple(segment.counted)
        ns = self._weighed.get(counted)
        if ns is None:
            work = segment.work
            ns = sum([work[kind] * self.ns[kind] for kind in sorted(work)])
            if len(counted) < SHORT:  # users do the same again and again
                self._weighed[counted] = ns
        return round(speed * ns)


class Recorded(Clock):
    """What the trace of an earlier run says: by (round, party, lane), in order, checked by call and what."""

    def __init__(self, trace: Trace) -> None:
        self._steps: dict[tuple[int, int, str], deque[Step]] = {}
        for row in trace:
            if isinstance(row, Step):
                self._steps.setdefault((row.round, row.party, row.lane), deque()).append(row)

    def work_ns(self, segment: Segment, speed: float) -> int:
        raise TypeError("a recording knows steps, not work")  # pragma: no cover

    def spans(
        self, key: Key, segments: Sequence[Segment], speed: float, overhead_ns: int, cut: bool
    ) -> Spans:
        now = f"round {key[0]}, party {key[1]}: now {' '.join(key[3:])}"
        steps = self._steps.get(key[:3])
        if not steps:
            raise ReplayError(f"{now}, which the recording does not have")
        step = steps.popleft()
        if (step.call, step.what) != key[3:]:
            raise ReplayError(f"{now}, recorded {step.call} {step.what}")
        *first, (phase, ns) = step.segments
        return (*first, (phase, ns + step.left))  # whole, for the same loss to break it off again
