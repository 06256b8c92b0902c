"""Recorded links in mahimahi's format, as the mean rates of windows."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simfl.connect.importers import Imported, Table
from simfl.errors import counted, refusal
from simfl.world.mahimahi import PACKET_BITS, delivered, deliveries

MAX_WINDOWS = 10_000_000
"""Windows of all users."""


def mahimahi(pairs: Sequence[tuple[Path, Path]], window_ms: int) -> Imported:
    """Return the table `rates`.

    A user's period is the longer one of its two traces. The other trace is repeated until then, as in
    mahimahi.

    Args:
        pairs: Each user's uplink and downlink trace.
        window_ms: Milliseconds of a window.

    Raises:
        ScenarioError: A file is not such a trace, or there are more than `MAX_WINDOWS`.
    """
    rows: list[tuple[int, float, float, float, float]] = []
    shorter = 0
    for user, (up, down) in enumerate(pairs):
        links = [deliveries(up), deliveries(down)]
        periods = [int(times[-1]) for times in links]
        period = max(periods)
        shorter += periods[0] != periods[1]
        # Counted before they are made.
        if len(rows) + period // window_ms > MAX_WINDOWS:
            longest = str((up, down)[periods.index(period)])
            message = f"{period} ms in windows of {window_ms} ms: more than {MAX_WINDOWS} windows in all"
            raise refusal(longest, links[periods.index(period)].size, message)
        # The last window ends with the period, and may be shorter than the others.
        ends = np.append(np.arange(window_ms, period, window_ms), period)
        begins = np.append(0, ends[:-1])
        rates = [
            # Cumulated packets at the ends of windows: their differences are exact integers, also where a
            # trace repeats within a window.
            np.diff(delivered(times, ends), prepend=0) * PACKET_BITS / (1000 * (ends - begins))
            for times in links
        ]
        rows += zip(
            [user] * ends.size,
            (begins / 1000).tolist(),
            *(rate.tolist() for rate in rates),
            [period / 1000] * ends.size,
            strict=True,
        )
    return Imported(
        {"rates": Table(("user", "from_s", "up_mbps", "down_mbps", "period_s"), rows)},
        f"{counted(len(rows), 'window')} of {counted(len(pairs), 'user')}; dropped: nothing; "
        f"the shorter of two traces begins again until the other one ends: {counted(shorter, 'user')}",
    )
