"""The assumptions that decide a run's times, as far as neither its scenario nor its trace holds them."""

from typing import NamedTuple

from pydantic import Field

from simfl.runs.results.block import SummaryBlock


class Assumed(SummaryBlock):
    """Links are None in a run of an earlier version, masks' seconds unless the clock is modelled."""

    d: int = Field(ge=1)
    """Parameters of the model."""
    relayed: list[str]
    """Kinds of message that hold what users have for each other."""
    slowdown: float = Field(gt=0)
    """The median user's factor on all work."""
    up_mbps: float | None = None
    """The mean of the users' uplinks."""
    down_mbps: float | None = None
    """The mean of the users' downlinks."""
    latency_s: float | None = None
    """The least latency of a user's link."""
    expand_user_s: float | None = None
    """To expand and add a mask of d elements on the median user's device; of the modelled clock only."""
    expand_server_s: float | None = None
    """The same on the server."""
    needed: dict[str, str] = {}
    """By entry, what its selection needs for a round, where the number of available users alone does not
    decide."""


class Masking(NamedTuple):
    """A user's and a round's work for masks when nobody is lost: seconds in each phase on the median user's
    device (none unless the clock is modelled), and bytes of shares from all users to each other."""

    phases_s: dict[str, float]
    shares_bytes: int
