"""The result of an attack on a run's aggregates, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simfl.errors import counted
from simfl.privacy.recorded import Attack
from simfl.reports.units import listed

ERROR_BINS = (0.0, 0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 1.0, np.inf)
BAR_WIDTH = 40
MAX_USERS = 6
"""Isolated users who are named."""


def lines(name: str, found: Attack) -> Iterator[str]:
    """A headline, the histogram of the reconstruction errors, and the users whom the server could isolate."""
    errors = found.errors[np.isfinite(found.errors)]
    yield (
        f"{name}: rounds {found.first} to {found.last}, {found.aggregates} aggregates over "
        f"{len(errors)} of {len(found.errors)} users, rank {found.rank}"
    )
    if len(errors):
        yield "  reconstruction error e = ||d - d^||^2 / ||d||^2 of eq. 35, users by error:"
        mean, median = errors.mean(), np.median(errors)
        yield f"  mean {mean:.4g}, median {median:.4g}, least {errors.min():.4g}, most {errors.max():.4g}"
    counts, _ = np.histogram(errors, ERROR_BINS)
    for low, high, count in zip(ERROR_BINS[:-1], ERROR_BINS[1:], counts, strict=True):
        bar = "█" * round(BAR_WIDTH * count / max(counts.max(), 1))
        yield f"  {low:>5g} .. {high:<5g} {count:>6}  {bar}".rstrip()
    if found.alone:
        users = counted(len(found.alone), "user")
        yield f"  isolated by their participation alone: {users} ({listed(found.alone, MAX_USERS)})"
    else:
        yield "  nobody can be isolated by participation alone"
    sizes = [len(group) for group in found.groups if len(group) > 1]
    if sizes:
        low, high = min(sizes), max(sizes)
        each = f"{low}" if low == high else f"{low} to {high}"
        yield f"  sums that can be isolated: {counted(len(sizes), 'group')} of {each} users"
