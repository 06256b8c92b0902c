"""Virtual time: integer nanoseconds since the start of a run."""

NS = 10**9


def nanoseconds(seconds: float) -> int:
    """Seconds as virtual time, rounded once.

    >>> nanoseconds(0.25)
    250000000
    """
    return round(seconds * NS)


def lasting(seconds: float) -> int:
    """`nanoseconds` of a state that lasts, at least 1: time moves on however short recurring states are."""
    return max(1, nanoseconds(seconds))
