"""How rounds and buffers go: who is picked, how long the server waits, and who is lost where."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from simfl.scenario.blocks import Block, Count, Fraction, Natural, NonNegative, Positive, shorthand

Point = Literal["advertise", "shares", "training", "upload", "recovery"]
When = Literal["before_send", "mid_send", "after_send"]

POINTS: tuple[Point, ...] = get_args(Point)
"""Where a user can be lost, in the order of a round; every message a user sends belongs to one."""


class SelectAll(Block):
    """Everyone who is available."""

    kind: Literal["all"] = "all"


class SelectRandom(Block):
    """`users` of the available, uniformly."""

    kind: Literal["random"] = "random"
    users: Count


Selection = Annotated[SelectAll | SelectRandom, Field(discriminator="kind"), shorthand(random="users")]


class Buffer(Block):
    """Asynchronous runs: K updates an aggregation, staleness at most `staleness_bound`.

    At most `concurrency` users are in flight at once (all who are available, unless given). A lost user
    is offline for `return_s` seconds.
    """

    K: Count
    staleness_bound: Natural
    concurrency: Count | None = None
    return_s: Positive | None = None


class Deadlines(Block):
    """Seconds that the server waits in each collecting state; those that a protocol uses must be given.

    In an asynchronous run `upload` is the time from picking a user to giving its update up.
    """

    advertise: Positive | None = None
    shares: Positive | None = None
    upload: Positive | None = None
    recovery: Positive | None = None


# --- losses -------------------------------------------------------------------------------------
class ByTimeout(Block):
    """The server learns of a loss when the deadline of its state passes."""

    kind: Literal["timeout"] = "timeout"


class ByDisconnect(Block):
    """The transport reports a broken connection `delay_s` seconds after the loss."""

    kind: Literal["disconnect"] = "disconnect"
    delay_s: NonNegative


Detect = Annotated[ByTimeout | ByDisconnect, Field(discriminator="kind"), shorthand(disconnect="delay_s")]


class NoLosses(Block):
    """Nobody is lost within a round."""

    kind: Literal["none"] = "none"


class Rate(Block):
    """A fraction of the selected users is lost at one point.

    The default is the papers' worst case: after sharing and before the server has the upload, so that
    the lost users' masks must be recovered. A list is walked through round by round.
    """

    kind: Literal["rate"] = "rate"
    rate: Fraction | Annotated[tuple[Fraction, ...], Field(min_length=1)]
    at: Point = "upload"
    when: When = "before_send"


class Loss(Block):
    """One scripted loss: in `round` (of an asynchronous run: the user's own cycle), at a point."""

    user: Natural
    round: Natural = 0
    at: Point
    when: When | Literal["delay"]
    delay_s: Positive | None = None

    @model_validator(mode="after")
    def delay_has_a_length(self) -> Loss:
        if (self.when == "delay") != (self.delay_s is not None):
            raise ValueError("delay_s must be given with `when: delay`, and only there")
        return self


class Script(Block):
    """An exact list of losses."""

    kind: Literal["script"] = "script"
    losses: tuple[Loss, ...]


Dropout = Annotated[
    NoLosses | Rate | Script,
    Field(discriminator="kind"),
    shorthand(rate="rate", script="losses"),
]
