"""Histograms as lines of text: the labels that users hold (`simfl check`), the errors of an attack."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simfl.errors import counted
from simfl.runs.results.units import listed

if TYPE_CHECKING:
    from simfl.privacy.attack import Attack

I64 = NDArray[np.int64]
MAX_USERS, MAX_CELLS = 12, 40  # rows that are shown, and cells of a bar
NO_SAMPLES, BLOCKS = "·", "▁▂▃▄▅▆▇█"
ERROR_BINS = (0.0, 0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 1.0, np.inf)
MAX_NAMED = 6  # users whom the server could isolate


def label_histogram(counts: I64, width: int = 80) -> list[str]:
    """A row for each user, or for twelve from the smallest to the largest; a legend; the spread over all.

    counts: samples of each label that each user holds [users, classes]. width: columns of the longest line.

    Raises:
        ValueError: no users, no classes, a negative count, or width < 1.
    """
    if counts.ndim != 2 or 0 in counts.shape:
        raise ValueError(f"counts {counts.shape} must be [users, classes], neither of them 0")
    if counts.min() < 0:
        raise ValueError(f"{counts.min()} samples: counts must not be negative")
    if width < 1:
        raise ValueError(f"width={width} must be at least 1")
    users, classes = counts.shape
    held, labels = counts.sum(axis=1), (counts > 0).sum(axis=1)
    chosen = np.arange(users)
    if users > MAX_USERS:  # evenly in the order of size
        places = np.rint(np.linspace(0, users - 1, MAX_USERS)).astype(np.int64)
        chosen = np.argsort(held, kind="stable")[places]
    rows = [("user", "samples", "labels"), *zip(chosen, held[chosen], labels[chosen], strict=True)]
    widths = [max(len(str(cell)) for cell in column) for column in zip(*rows, strict=True)]
    beside = ["".join(f"{cell:>{w}}  " for cell, w in zip(row, widths, strict=True)) for row in rows]
    each = -(-classes // max(1, min(MAX_CELLS, width - len(beside[0]))))
    bars = ["", *(_bar(row, each) for row in counts[chosen])]
    lines = [(text + bar).rstrip()[:width] for text, bar in zip(beside, bars, strict=True)]
    cell = "one label" if each == 1 else f"{each} labels"

    def spread(values: I64) -> str:
        middle = f"{np.median(values):.1f}".removesuffix(".0")
        return f"min {values.min()}, median {middle}, max {values.max()}"

    notes = [
        f"Bars: {cell} a cell, full for the user's most frequent, {NO_SAMPLES} for none.",
        f"Samples a user: {spread(held)}.",
        f"Labels a user: {spread(labels)}, of {classes}.",
    ]
    if len(chosen) < users:
        notes.insert(0, f"{len(chosen)} of {users} users, evenly from the fewest samples to the most.")
    return lines + [line for note in notes for line in wrap(note, width)]


def _bar(row: I64, each: int) -> str:
    """A cell for each `each` neighbouring labels; the last may stand for fewer, hence means."""
    starts = np.arange(0, len(row), each)
    means = np.add.reduceat(row, starts) / np.diff(starts, append=len(row))
    heights = np.ceil(means / (means.max() or 1) * len(BLOCKS)).astype(np.int64)
    return "".join((NO_SAMPLES + BLOCKS)[height] for height in heights)


def attack_lines(name: str, found: Attack) -> Iterator[str]:
    """A headline, the histogram of the reconstruction errors, and the users whom the server could isolate."""
    errors = found.errors[np.isfinite(found.errors)]
    users = f"{len(errors)} of {len(found.errors)} users, rank {found.rank}"
    yield f"{name}: rounds {found.first} to {found.last}, {found.aggregates} aggregates over {users}"
    if len(errors):
        yield "  reconstruction error e = ||d - d^||^2 / ||d||^2 of eq. 35, users by error:"
        mean, median = errors.mean(), np.median(errors)
        yield f"  mean {mean:.4g}, median {median:.4g}, least {errors.min():.4g}, most {errors.max():.4g}"
    counts, _ = np.histogram(errors, ERROR_BINS)
    for low, high, count in zip(ERROR_BINS[:-1], ERROR_BINS[1:], counts, strict=True):
        bar = "█" * round(MAX_CELLS * count / max(counts.max(), 1))
        yield f"  {low:>5g} .. {high:<5g} {count:>6}  {bar}".rstrip()
    if found.alone:
        users = counted(len(found.alone), "user")
        yield f"  isolated by their participation alone: {users} ({listed(found.alone, MAX_NAMED)})"
    else:
        yield "  nobody can be isolated by participation alone"
    if sizes := [len(group) for group in found.groups if len(group) > 1]:
        low, high = min(sizes), max(sizes)
        each = f"{low}" if low == high else f"{low} to {high}"
        yield f"  sums that can be isolated: {counted(len(sizes), 'group')} of {each} users"
    if found.weak is not None:
        lower, upper = found.weak
        weak = f"{lower}" if lower == upper else f"{lower} to {upper}"
        yield f"  T over these aggregates: weak {weak}, strong {found.strong}"
