"""Handles: content whose size is known at once, and which itself is there now, later or never.

Content is rows x columns: a 2-D array, or where rows are long a list of arrays (`simfl.crypto.row_routing`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Self

import numpy as np

Kernel = Callable[..., Any]
DType = np.dtype[Any]
Shape = tuple[int, int, DType]  # rows, columns and the type of an element

# The types of an element: of a key or ciphertext, of a field element, and of reals.
U8, U32, F32, F64 = (np.dtype(kind) for kind in (np.uint8, np.uint32, np.float32, np.float64))


@dataclass(eq=False, repr=False, slots=True)
class Handle:
    """Rows of `columns` elements of a type; `forged` are rows that an adversary touched.

    >>> share = Handle(2, 100, U32)
    >>> share, share.size_bytes
    (Handle(2 x 100 uint32), 800)
    """

    rows: int
    columns: int
    dtype: DType
    content: Any = None
    forged: frozenset[int] = frozenset()

    @property
    def size_bytes(self) -> int:
        return self.rows * self.columns * self.dtype.itemsize

    def __repr__(self) -> str:  # never the content: it may be a key
        return f"Handle({self.rows} x {self.columns} {self.dtype})"


_forged = attrgetter("forged")


class HandleList:
    """Handles that several operations take, each all but one of them: without(k) costs nothing."""

    def __init__(self, handles: list[Handle], but: int | None = None, clean: bool | None = None) -> None:
        self.handles, self.but = handles, but
        self.clean = not any(map(_forged, handles)) if clean is None else clean

    def without(self, k: int) -> Self:
        return type(self)(self.handles, k, self.clean)

    def __len__(self) -> int:
        return len(self.handles) - (self.but is not None)

    def __getitem__(self, k: int) -> Handle:
        return self.handles[k + (self.but is not None and k >= self.but)]

    def __iter__(self) -> Iterator[Handle]:
        return (handle for k, handle in enumerate(self.handles) if k != self.but)
