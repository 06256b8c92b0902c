"""How rounds and buffers go: how long the server waits, and who is lost where."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from simfl.blocks import Block, Count, Fraction, Natural, NonNegative, Positive, bare_number, shorthand

Point = Literal["advertise", "shares", "training", "upload", "recovery"]
When = Literal["before_send", "mid_send", "after_send"]

POINTS: tuple[Point, ...] = get_args(Point)
"""Where a user can be lost, in the order of a round; every message a user sends belongs to one."""

STEPS: tuple[Point, ...] = ("advertise", "shares", "upload", "recovery")
"""Steps 0 to 3 of CCESA."""


class Buffer(Block):
    """Asynchronous runs: K updates an aggregation, staleness at most `staleness_bound`.

    At most `concurrency` users are in flight at once (all who are available, unless given). A lost user
    is offline for `return_s` seconds.
    """

    K: Count
    """Updates in an aggregation."""
    staleness_bound: Natural
    """Older updates are discarded."""
    concurrency: Count | None = None
    """The most users in flight at once; all who are available, unless given."""
    return_s: Positive | None = None
    """How long a lost user is offline."""


class FixedDeadline(Block):
    """The server waits so many seconds at most."""

    kind: Literal["fixed"] = "fixed"
    after_s: Positive
    """The longest wait."""


class Quorum(Block):
    """Once a fraction of those expected have answered (at least as many as the protocol needs) the server
    waits `grace_s` seconds more; it waits `after_s` at most."""

    kind: Literal["quorum"] = "quorum"
    fraction: Fraction
    """Of those expected when the state opened."""
    grace_s: NonNegative
    """The wait once they have answered."""
    after_s: Positive
    """The longest wait."""


Deadline = Annotated[
    FixedDeadline | Quorum,
    Field(discriminator="kind"),
    shorthand(fixed="after_s"),
    bare_number("fixed", "after_s"),
]


class Deadlines(Block):
    """How long the server waits in each collecting state; those that a protocol uses must be given.

    In an asynchronous run `upload` is the time from picking a user to giving its update up.
    """

    advertise: Deadline | None = None
    """For public keys."""
    shares: Deadline | None = None
    """For encrypted shares."""
    upload: Deadline | None = None
    """For uploads; training is part of it."""
    recovery: Deadline | None = None
    """For what recovers the sum."""

    @property
    def given(self) -> dict[str, FixedDeadline | Quorum]:
        """Those that are given, by the state's name."""
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}


# --- losses -------------------------------------------------------------------------------------
class ByTimeout(Block):
    """The server learns of a loss when the deadline of its state passes."""

    kind: Literal["timeout"] = "timeout"


class ByDisconnect(Block):
    """The transport reports a broken connection `delay_s` seconds after the loss."""

    kind: Literal["disconnect"] = "disconnect"
    delay_s: NonNegative
    """From the loss to the report."""


Detect = Annotated[ByTimeout | ByDisconnect, Field(discriminator="kind"), shorthand(disconnect="delay_s")]


class NoLosses(Block):
    """Nobody is lost within a round."""

    kind: Literal["none"] = "none"


Fractions = Fraction | Annotated[tuple[Fraction, ...], Field(min_length=1)]
"""One for every round, or a list that is walked through round by round."""


class Rate(Block):
    """A fraction of the selected users is lost at one point."""

    kind: Literal["rate"] = "rate"
    rate: Fractions
    """The fraction, or a list that is walked through round by round."""
    at: Point = "upload"
    """Where in the round."""
    when: When = "before_send"
    """Before, amid or after the sending of that point's message."""


class WorstCase(Block):
    """The papers' worst case: a fraction of the selected users is lost after sharing and before the server
    has the upload, so that their masks must be recovered."""

    kind: Literal["worst_case"] = "worst_case"
    fraction: Fractions
    """One, or a list that is walked through round by round."""

    @property
    def as_rate(self) -> Rate:
        """What it is short for."""
        return Rate(rate=self.fraction, at="upload", when="before_send")


class PerStep(Block):
    """Each selected user is lost at each of four steps with probability q (CCESA section 4.3).

    The steps are `advertise`, `shares`, `upload` and `recovery`.

    So 1 - (1 - q)^4 of them are lost in all, where the protocol has all four steps.
    """

    kind: Literal["per_step"] = "per_step"
    q: Fraction
    """The probability at each step."""
    when: When = "before_send"
    """Before, amid or after the sending of that step's message."""


class Loss(Block):
    """One scripted loss: in `round` (of an asynchronous run: the user's own cycle), at a point."""

    user: Natural
    """From 0 to N - 1."""
    round: Natural = 0
    """Counted from 0."""
    at: Point
    """Where in the round."""
    when: When | Literal["delay"]
    """As for a rate; `delay` sends later."""
    delay_s: Positive | None = None
    """How much later; only with `when: delay`."""

    @model_validator(mode="after")
    def delay_has_a_length(self) -> Loss:
        if (self.when == "delay") != (self.delay_s is not None):
            raise ValueError("delay_s must be given with `when: delay`, and only there")
        return self


class Script(Block):
    """An exact list of losses."""

    kind: Literal["script"] = "script"
    losses: tuple[Loss, ...]
    """One entry a loss."""


Dropout = Annotated[
    NoLosses | Rate | WorstCase | PerStep | Script,
    Field(discriminator="kind"),
    shorthand(rate="rate", worst_case="fraction", per_step="q", script="losses"),
]
