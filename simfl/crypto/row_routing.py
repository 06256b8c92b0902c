"""Rows on their way: picked, relayed, put together. No arithmetic.

Invariant: rows of `LONG_BYTES` and more are kept apart, a list of arrays, so that routing them copies nothing
and each is freed when its last holder is gone; shorter ones are one array [n, L].
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONG_BYTES = 4096

Row = NDArray[Any]
Rows = NDArray[Any] | list[Row]


def are_long(rows: Rows) -> bool:
    """Return True if rows are kept apart."""
    return len(rows) > 0 and rows[0].nbytes >= LONG_BYTES


def pick(rows: Rows, at: Sequence[int]) -> Rows:
    """Return rows `at`; a single long one is copied, as it would keep its whole matrix alive."""
    if not are_long(rows):
        return np.asarray(rows)[list(at)]
    return [rows[i] for i in at] if len(at) > 1 else [rows[i].copy() for i in at]


def gather(rows: Sequence[Rows], at: Sequence[int]) -> Rows:
    """Return row at[k] of the k-th."""
    out = [some[i] for some, i in zip(rows, at, strict=True)]
    return out if are_long(out) else np.concatenate(out).reshape(len(out), -1)


def join(rows: Sequence[Rows]) -> Rows:
    """Return all rows of all, one below the other."""
    return [row for some in rows for row in some] if are_long(rows[0]) else np.concatenate(rows)


def parts(rows: Rows, which: Sequence[int], length: int) -> Row:
    """Return of row k the elements [which[k] * length, (which[k] + 1) * length), [n, length]."""
    cut = np.asarray(rows).reshape(len(rows), -1, length)
    return cut[np.arange(len(rows)), list(which)]


def tamper(rows: Rows, at: int) -> Row:
    """Return a copy with one bit of row `at` flipped."""
    out = np.array(rows)
    out.view(np.uint8)[at, 0] ^= 1
    return out
