"""The assumptions that decide a run's times, as far as neither its scenario nor its trace holds them."""

from typing import NamedTuple

from pydantic import Field

from simfl.results.block import Block


class Assumed(Block):
    """d: parameters of the model. relayed: kinds of message that hold what users have for each other.
    slowdown: the median user's. up_mbps, down_mbps: means of users' links; latency_s: their least, None in
    a run of an earlier version. expand_user_s, expand_server_s: seconds to expand and add a mask of d
    elements on that user's device and on the server, None unless the clock is modelled."""

    d: int = Field(ge=1)
    relayed: list[str]
    slowdown: float = Field(gt=0)
    up_mbps: float | None = None
    down_mbps: float | None = None
    latency_s: float | None = None
    expand_user_s: float | None = None
    expand_server_s: float | None = None


class Masking(NamedTuple):
    """A user's and a round's work for masks when nobody is lost: seconds in each phase on the median user's
    device (none unless the clock is modelled), and bytes of shares from all users to each other."""

    phases_s: dict[str, float]
    shares_bytes: int
