"""The drift of a machine's speed during measured runs, by a fixed kernel that was timed between rounds."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Self

from pydantic import Field

from simfl.runs.results.block import Count, SummaryBlock

MAX_RATIO = 1.1  # that a run is not warned of
LEFT_OUT = 0.1  # of all timings at each end: one that was disturbed is no drift


class Drift(SummaryBlock):
    """The kernel's times, and how far apart they are."""

    least_ns: Count
    """The 10th percentile of the kernel's times."""
    most_ns: Count
    """The 90th percentile."""
    ratio: Annotated[float, Field(ge=1)]
    """`most_ns` over `least_ns`."""
    timings: dict[str, list[tuple[Count, Count]]]
    """By protocol, pairs of a round and the kernel's time after it in ns."""

    @classmethod
    def of(cls, speed_ns: Mapping[str, Sequence[int | None]]) -> Self | None:
        """Return the drift over all protocols of a run, one after the other; None without any timing.

        speed_ns: protocol -> the kernel's time after each round, None where it was not timed.

        >>> Drift.of({"fedavg": [10, None, 13], "secagg": [11]}).ratio
        1.3
        """
        known = {
            name: [(k, ns) for k, ns in enumerate(series) if ns]  # zero: the clock is too coarse
            for name, series in speed_ns.items()
        }
        ordered = sorted(ns for series in known.values() for _, ns in series)
        if not ordered:
            return None
        left_out = int(LEFT_OUT * len(ordered))
        least, most = ordered[left_out], ordered[-1 - left_out]
        return cls(least_ns=least, most_ns=most, ratio=most / least, timings=known)


def warning(drifts: Sequence[Drift | None]) -> str | None:
    """Return a sentence if the speed moved much within runs of one scenario, or from one to another."""
    found = [drift for drift in drifts if drift is not None]
    series = (timings for drift in found for timings in drift.timings.values())
    moved = Drift.of({"": [ns for timings in series for _, ns in timings]})
    if moved is None or moved.ratio <= MAX_RATIO:
        return None
    runs, remedy = ("these runs", "more of them") if len(drifts) > 1 else ("this run", "--repeat")
    return (
        f"The machine's speed moved by {100 * (moved.ratio - 1):.0f} % during {runs}: measured times mix "
        f"fast and slow stretches. Use an idle machine, {remedy}, or clock: modelled."
    )
