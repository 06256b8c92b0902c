"""The routing of rows: picked, relayed, put together. No arithmetic.

Invariant: rows of `LONG_BYTES` and more are a list of separate arrays. So routing copies nothing, and each
row is freed when its last holder drops it. Shorter rows are one array [n, L]
(`tests/crypto/test_row_routing.py::test_long_rows_are_not_copied_but_one_alone_is`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Keep in step: keys._together splits opened rows here, ops.rows_apart counts by it, and the memory probe
# (shadow.py) and the wire (live/wire.py) store by it.
LONG_BYTES = 4096
"""Minimum size of a row that is a separate array."""

Row = NDArray[Any]
Rows = NDArray[Any] | list[Row]


def are_long(rows: Rows) -> bool:
    """Return True if rows are long ones, which are separate arrays."""
    return len(rows) > 0 and rows[0].nbytes >= LONG_BYTES


def pick(rows: Rows, at: Sequence[int]) -> Rows:
    """Return the rows with indices `at`."""
    if not are_long(rows):
        return np.asarray(rows)[list(at)]
    # A single row is copied: a view would keep its whole matrix alive.
    return [rows[i] for i in at] if len(at) > 1 else [rows[i].copy() for i in at]


def gather(rows: Sequence[Rows], at: Sequence[int]) -> Rows:
    """Return row at[k] of the k-th rows, for each k."""
    # Not by `np.concatenate` alone: long rows stay the senders' own arrays.
    out = [held[i] for held, i in zip(rows, at, strict=True)]
    return out if are_long(out) else np.concatenate(out).reshape(len(out), -1)


def join(rows: Sequence[Rows]) -> Rows:
    """Return all rows of all, one below the other."""
    return [row for held in rows for row in held] if are_long(rows[0]) else np.concatenate(rows)


def parts(rows: Rows, which: Sequence[int], length: int) -> Row:
    """Return elements which[k] length .. (which[k] + 1) length - 1 of each row k, [n, length]."""
    divided = np.asarray(rows).reshape(len(rows), -1, length)
    return divided[np.arange(len(rows)), list(which)]


def tamper(rows: Rows, at: int) -> Row:
    """Return a copy with one bit of row `at` flipped."""
    # A copy, as the sender still holds the row.
    out = np.array(rows)
    out.view(np.uint8)[at, 0] ^= 1
    return out
