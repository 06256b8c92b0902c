"""The compilation of loops by numba: its types under short names, and one decorator.

A loop is compiled for its signatures when its module is imported, or loaded from numba's cache on disk.
Importing this module or a module of loops imports numba, which takes half a second, and seconds where nothing
is cached. So no other module imports them at its top: `short_loops.loops_for` imports them for long vectors
only.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit, types

Loop = TypeVar("Loop", bound=Callable[..., object])

INT, WORD, WIDE, REAL, BOOL = types.int64, types.uint32, types.uint64, types.float64, types.boolean


def written(kind: Any, dimensions: int = 1) -> Any:
    """Return the type of a contiguous array that a loop writes to."""
    return types.Array(kind, dimensions, "C")


def read(kind: Any, dimensions: int = 1) -> Any:
    """Return the type of a contiguous array that a loop only reads; a writable one is accepted too."""
    return types.Array(kind, dimensions, "C", readonly=True)


REALS = (read(types.float32), read(types.float64))
"""The types of an update."""


def compiled(*signatures: Any) -> Callable[[Loop], Loop]:
    """Return a decorator that compiles a loop for these signatures at once, so that no call compiles later.

    A loop takes arrays of its signatures' types and layout only, and raises TypeError for all others.
    """

    def decorate(loop: Loop) -> Loop:
        # Without the interpreter's lock a pool's threads run side by side. A division by zero gives what
        # numpy gives and does not raise, which spares a test in each iteration.
        options = {"nogil": True, "error_model": "numpy"}
        try:
            # With signatures numba compiles now. Without them it would compile within the first call, which
            # may be a timed step, and again for each new type.
            fast: Loop = njit(list(signatures), cache=True, **options)(loop)
        except (RuntimeError, OSError):
            # Numba found no folder that it may write its cache to, as in a read-only container.
            # Each process then compiles for itself (test_loops.py:
            # test_loops_are_compiled_without_a_cache_folder).
            fast = njit(list(signatures), **options)(loop)
        return fast

    return decorate
