"""Virtual time: integer nanoseconds since the start of a run."""

# Not 1e9, a float: products and quotients of nanoseconds stay exact integers.
NS = 10**9
"""Nanoseconds of a second."""


def nanoseconds(seconds: float) -> int:
    """Return seconds as virtual time, rounded once.

    >>> nanoseconds(0.25)
    250000000
    """
    return round(seconds * NS)


def lasting(seconds: float) -> int:
    """Return the `nanoseconds` of a state, at least 1: otherwise recurring states could stop virtual time."""
    return max(1, nanoseconds(seconds))
