"""The labels that users hold, as a histogram in text (`simfl check`)."""

from __future__ import annotations

from textwrap import wrap

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
MAX_USERS, MAX_CELLS = 12, 40
"""Rows of the histogram, and cells of a bar."""
NO_SAMPLES, BLOCKS = "·", "▁▂▃▄▅▆▇█"


def label_histogram(counts: I64, width: int = 80) -> list[str]:
    """Return lines of text: a row for each user, a legend, and the spread over all users.

    Of many users twelve have a row, from the smallest to the largest.

    Args:
        counts: Samples of each label that each user holds, [users, classes].
        width: Maximum length of a line.

    Raises:
        ValueError: No users, no classes, a negative count, or width < 1.
    """
    if counts.ndim != 2 or 0 in counts.shape:
        raise ValueError(f"counts {counts.shape} must be [users, classes], neither of them 0")
    if counts.min() < 0:
        raise ValueError(f"{counts.min()} samples: counts must not be negative")
    if width < 1:
        raise ValueError(f"width={width} must be at least 1")
    users, classes = counts.shape
    samples, labels = counts.sum(axis=1), (counts > 0).sum(axis=1)
    chosen = np.arange(users)
    # Evenly in the order of size, so that the rows show the spread.
    if users > MAX_USERS:
        ranks = np.rint(np.linspace(0, users - 1, MAX_USERS)).astype(np.int64)
        # Stable: users with equally many samples stay in the order of their numbers.
        chosen = np.argsort(samples, kind="stable")[ranks]
    rows = [("user", "samples", "labels"), *zip(chosen, samples[chosen], labels[chosen], strict=True)]
    widths = [max(len(str(cell)) for cell in column) for column in zip(*rows, strict=True)]
    beside = ["".join(f"{cell:>{w}}  " for cell, w in zip(row, widths, strict=True)) for row in rows]
    # Neighbouring labels share a cell if they are many, or the terminal is narrow.
    each = -(-classes // max(1, min(MAX_CELLS, width - len(beside[0]))))
    bars = ["", *(_bar(row, each) for row in counts[chosen])]
    lines = [(text + bar).rstrip()[:width] for text, bar in zip(beside, bars, strict=True)]
    cell = "one label" if each == 1 else f"{each} labels"

    def spread(values: I64) -> str:
        middle = f"{np.median(values):.1f}".removesuffix(".0")
        return f"min {values.min()}, median {middle}, max {values.max()}"

    notes = [
        f"Bars: {cell} a cell, full for the user's most frequent, {NO_SAMPLES} for none.",
        f"Samples a user: {spread(samples)}.",
        f"Labels a user: {spread(labels)}, of {classes}.",
    ]
    if len(chosen) < users:
        notes.insert(0, f"{len(chosen)} of {users} users, evenly from the fewest samples to the most.")
    return lines + [line for note in notes for line in wrap(note, width)]


def _bar(row: I64, each: int) -> str:
    """Return a bar with a cell for `each` neighbouring labels; the last may have fewer, hence means."""
    # Means of cells and not sums, or a last cell of fewer labels would look emptier.
    starts = np.arange(0, len(row), each)
    means = np.add.reduceat(row, starts) / np.diff(starts, append=len(row))
    # Rounded up, so that a label of a single sample has a bar. `or 1`: a user without samples has none.
    heights = np.ceil(means / (means.max() or 1) * len(BLOCKS)).astype(np.int64)
    return "".join((NO_SAMPLES + BLOCKS)[height] for height in heights)
