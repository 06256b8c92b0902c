"""The assumptions that decide a run's times and stand neither in its scenario nor in its trace."""

from typing import NamedTuple

from pydantic import Field

from simfl.runs.results.block import SummaryBlock


class Assumed(SummaryBlock):
    """Facts about a run that decide its times.

    Figures of links are None in a run of an earlier version, seconds of masks unless the clock is modelled.
    """

    d: int = Field(ge=1)
    """Parameters of the model."""
    relayed: list[str]
    """Kinds of message that carry users' shares for each other."""
    slowdown: float = Field(gt=0)
    """The median user's factor on all work."""
    up_mbps: float | None = None
    """[Mbit/s] The mean of the users' uplinks; null in a run of an earlier version, as the two below."""
    down_mbps: float | None = None
    """[Mbit/s] The mean of the users' downlinks."""
    latency_s: float | None = None
    """[s] The minimum latency of the users' links."""
    expand_user_s: float | None = None
    """[s] To expand and add a mask of d elements on the median user's device; of the modelled clock only."""
    expand_server_s: float | None = None
    """[s] The same on the server."""
    needed: dict[str, str] = {}
    """By entry, the condition of its selection on a round, unless it is a number of available users."""


class Masking(NamedTuple):
    """The cost of masks in a round in which no user is lost."""

    phases_s: dict[str, float]
    """[s] A user's work on the median device, by phase; empty unless the clock is modelled."""
    shares_bytes: int
    """[B] Shares from all users to each other."""
