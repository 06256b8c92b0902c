"""How rounds and buffers go: how long the server waits, and how it learns of a loss."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simfl.blocks import Block, Count, Fraction, Natural, NonNegative, Positive, bare_number, shorthand


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
