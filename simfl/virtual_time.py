"""Virtual time: integer nanoseconds since the start of a run."""

# Integers, since sums of floats depend on their order: the critical path must add up exactly.
NS = 10**9
"""Nanoseconds of a second."""


def nanoseconds(seconds: float) -> int:
    """Return seconds as virtual time, rounded once.

    >>> nanoseconds(0.25)
    250000000
    """
    # Each duration is rounded by itself. Sums are then of integers and have no further error.
    return round(seconds * NS)


def lasting(seconds: float) -> int:
    """Return the `nanoseconds` of a state, at least 1: otherwise recurring states could stop virtual time."""
    return max(1, nanoseconds(seconds))
