"""Who holds what, as lines of text: the labels of a partition's users, for `simfl check`."""

from textwrap import wrap

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]

ROWS, CELLS = 12, 40
"""The most users that are shown, and the most cells of a bar."""

BLOCKS = "▁▂▃▄▅▆▇█"
NOTHING = "·"


def label_histogram(counts: I64, width: int = 80) -> list[str]:
    """A row for each user, or for twelve of them; what the rows mean; and the spread over all users.

    counts: samples of each label that each user holds [users, classes]. A row has the user's number, how
    many samples and how many labels it holds, and a bar with a cell a label, full for the user's most
    frequent one; a cell stands for the mean of neighbouring labels where there are more than fit. Of more
    than twelve users those are shown who stand evenly in the order of size, from the smallest to the
    largest. No line is longer than `width` columns. ValueError unless counts has users and classes and
    none is negative, and width >= 1.
    """
    if counts.ndim != 2 or 0 in counts.shape:
        raise ValueError(f"counts {counts.shape} must be [users, classes], neither of them 0")
    if counts.min() < 0:
        raise ValueError(f"{counts.min()} samples: counts must not be negative")
    if width < 1:
        raise ValueError(f"width={width} must be at least 1")
    users, classes = counts.shape
    held, labels = counts.sum(axis=1), (counts > 0).sum(axis=1)
    shown = _shown(held)
    names = ("user", "samples", "labels")
    columns = [
        _column(name, values) for name, values in zip(names, (shown, held[shown], labels[shown]), strict=True)
    ]
    beside = ["  ".join(row) + "  " for row in zip(*columns, strict=True)]
    each = -(-classes // max(1, min(CELLS, width - len(beside[0]))))
    bars = ["", *(_bar(row, each) for row in counts[shown])]
    lines = [(text + bar).rstrip()[:width] for text, bar in zip(beside, bars, strict=True)]
    cell = "one label" if each == 1 else f"{each} labels"
    notes = [
        f"Bars: {cell} a cell, full for the user's most frequent, {NOTHING} for none.",
        f"Samples a user: {_spread(held)}.",
        f"Labels a user: {_spread(labels)}, of {classes}.",
    ]
    if len(shown) < users:
        notes.insert(0, f"{len(shown)} of {users} users, evenly from the fewest samples to the most.")
    return lines + [line for note in notes for line in wrap(note, width)]


def _shown(held: I64) -> I64:
    """Users by number if they are few, otherwise some, evenly in the order of size."""
    users = len(held)
    if users <= ROWS:
        return np.arange(users)
    places = np.rint(np.linspace(0, users - 1, ROWS)).astype(np.int64)
    return np.argsort(held, kind="stable")[places]


def _column(name: str, values: I64) -> list[str]:
    """A heading and its values, right-aligned."""
    cells = [name, *map(str, values)]
    return [cell.rjust(max(map(len, cells))) for cell in cells]


def _bar(row: I64, each: int) -> str:
    """A cell for each `each` neighbouring labels; the last may stand for fewer, hence means."""
    starts = np.arange(0, len(row), each)
    means = np.add.reduceat(row, starts) / np.diff(starts, append=len(row))
    heights = np.ceil(means / (means.max() or 1) * len(BLOCKS)).astype(np.int64)
    return "".join((NOTHING + BLOCKS)[height] for height in heights)


def _spread(values: I64) -> str:
    middle = f"{np.median(values):.1f}".removesuffix(".0")
    return f"min {values.min()}, median {middle}, max {values.max()}"
