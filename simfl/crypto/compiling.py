"""The compilation of loops: numba's types by short names, and one decorator. Importing it, or any loops,
imports numba and compiles or loads from numba's cache: callers do so inside their functions, and where
vectors are long (`short_loops`)."""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit, types

Loop = TypeVar("Loop", bound=Callable[..., object])

INT, WORD, WIDE, REAL, BOOL = types.int64, types.uint32, types.uint64, types.float64, types.boolean


def written(kind: Any, dimensions: int = 1) -> Any:
    return types.Array(kind, dimensions, "C")


def read(kind: Any, dimensions: int = 1) -> Any:
    return types.Array(kind, dimensions, "C", readonly=True)


REALS = (read(types.float32), read(types.float64))


def compiled(*signatures: Any) -> Callable[[Loop], Loop]:
    """Compile for these signatures now, so that no call compiles later."""

    def decorate(loop: Loop) -> Loop:
        options = {"nogil": True, "error_model": "numpy"}
        try:
            fast: Loop = njit(list(signatures), cache=True, **options)(loop)
        except (RuntimeError, OSError):  # numba finds no folder to cache in: every process compiles
            fast = njit(list(signatures), **options)(loop)
        return fast

    return decorate
