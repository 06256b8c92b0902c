"""The links of users: their rates and latency, as functions of the user and the time."""

from collections.abc import Callable
from typing import NamedTuple


class LinkState(NamedTuple):
    """A user's link from now on. up_bps, down_bps: bit/s, 0 while nothing moves. until: the nanosecond up to
    which all of it surely stays, `availability.FOR_EVER` where it never changes again."""

    up_bps: int
    down_bps: int
    latency_s: float
    until: int


Links = Callable[[int, int], LinkState]
"""The state of a user's link at a time: (user, now in nanoseconds) -> state."""
