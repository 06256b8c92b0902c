"""Options of data sets, checked."""

from __future__ import annotations

import sys

from simfl.learning.data.split import DataError


def count(place: str, value: object, least: int = 1) -> int:
    """An integer of at least `least`; DataError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DataError(f"{place}={value!r} must be an integer of at least {least}")
    return value


def positive(place: str, value: object) -> float:
    """A finite number above 0; DataError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise DataError(f"{place}={value!r} must be a finite number above 0")
    return float(value)
