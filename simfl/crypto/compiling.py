"""The compilation of loops: numba's types by short names, and one decorator.

Importing this module imports numba.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

A32 = NDArray[np.uint32]
A64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Loop = TypeVar("Loop", bound=Callable[..., object])

INT, WORD, WIDE, REAL, BOOL = types.int64, types.uint32, types.uint64, types.float64, types.boolean


def out_row(kind: Any) -> Any:
    """A row of a kind that a loop writes."""
    return types.Array(kind, 1, "C")


def in_row(kind: Any) -> Any:
    """A row of a kind that a loop reads."""
    return types.Array(kind, 1, "C", readonly=True)


REALS = (in_row(types.float32), in_row(types.float64))


def compiled(*signatures: Any) -> Callable[[Loop], Loop]:
    """Compile for these signatures now. Where numba finds no folder to cache in, every process compiles."""

    def decorate(loop: Loop) -> Loop:
        def compile_it(cache: bool) -> Any:
            return njit(list(signatures), cache=cache, nogil=True, error_model="numpy")(loop)

        try:
            fast: Loop = compile_it(cache=True)
        except (RuntimeError, OSError):
            fast = compile_it(cache=False)
        return fast

    return decorate
