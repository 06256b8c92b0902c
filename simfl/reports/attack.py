"""What the attack on a run's aggregates came to, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simfl.privacy.attack import Attack

EDGES = (0.0, 0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 1.0, np.inf)
WIDTH = 40


def lines(name: str, found: Attack) -> Iterator[str]:
    """A headline, the histogram of the reconstruction errors, and whom the server could isolate."""
    errors = found.errors[np.isfinite(found.errors)]
    yield (
        f"{name}: rounds {found.first} to {found.last}, {found.aggregates} aggregates over "
        f"{len(errors)} of {len(found.errors)} users, rank {found.rank}"
    )
    if len(errors):
        yield "  reconstruction error e = ||d - d^||^2 / ||d||^2 of eq. 35, users by error:"
        yield (
            f"  mean {errors.mean():.4g}, median {np.median(errors):.4g}, "
            f"least {errors.min():.4g}, most {errors.max():.4g}"
        )
    counts, _ = np.histogram(errors, EDGES)
    for low, high, count in zip(EDGES[:-1], EDGES[1:], counts, strict=True):
        bar = "█" * round(WIDTH * count / max(counts.max(), 1))
        yield f"  {low:>5g} .. {high:<5g} {count:>6}  {bar}".rstrip()
    if found.alone:
        yield f"  isolated by their participation alone: {_some(found.alone)}"
    else:
        yield "  nobody can be isolated by participation alone"
    together = [group for group in found.groups if len(group) > 1]
    if together:
        sizes = sorted({len(group) for group in together})
        shown = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        groups = "1 group" if len(together) == 1 else f"{len(together)} groups"
        yield f"  sums that can be isolated: {groups} of {shown} users"


def _some(users: tuple[int, ...], most: int = 6) -> str:
    listed = ", ".join(map(str, users[:most]))
    more = f" and {len(users) - most} more" if len(users) > most else ""
    count = "user" if len(users) == 1 else "users"
    return f"{len(users)} {count} ({listed}{more})"
