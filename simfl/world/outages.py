"""Outages: times at which the links of many users are slow, or cut, together.

Invariant: a user's outages are a function of the seed, its number and the time. Its group in an outage does
not depend on the number of users, and an outage with a name shifts no other's draws.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from math import isinf
from typing import Annotated, Literal

from pydantic import Field, model_validator

from simfl.config.blocks import Block, Count, Fraction, Name, SecondsDrawn, SecondsOrZero, shorthand
from simfl.errors import did_you_mean
from simfl.random_streams import Streams
from simfl.virtual_time import nanoseconds
from simfl.world.availability import OnlineSchedule, State
from simfl.world.classes import DEFAULT_CLASS
from simfl.world.timelines import FOR_EVER, Timeline, alternating, timeline_from

ClassOf = Callable[[int], str]
"""The name of a user's class."""

MEMBERS_KEPT = 2**16
"""Users whose groups are kept in memory; other users' groups are drawn again, which gives the same."""


class Everybody(Block):
    """All users, at once."""

    kind: Literal["all"] = "all"

    def group(self, u: float, name: str) -> int | None:
        """Return the number of a user's group by its uniform draw and its class; None if it is not hit."""
        return 0


class OfClass(Block):
    """The users of one class of the population, at once."""

    kind: Literal["class"] = "class"
    name: Name
    """The class."""

    def group(self, u: float, name: str) -> int | None:
        return 0 if name == self.name else None


class Share(Block):
    """A share of the users, at once: each user is drawn once."""

    kind: Literal["share"] = "share"
    share: Fraction
    """The probability of each user."""

    def group(self, u: float, name: str) -> int | None:
        return 0 if u < self.share else None


class Cells(Block):
    """Users live in cells with separate outages: a user's cell is drawn once."""

    kind: Literal["cells"] = "cells"
    cells: Count
    """The number of cells."""

    def group(self, u: float, name: str) -> int | None:
        return int(u * self.cells)


_SHORT = {"class": "name", "share": "share", "cells": "cells"}
Group = Annotated[Everybody | OfClass | Share | Cells, Field(discriminator="kind"), shorthand(**_SHORT)]


class Outage(Block):
    """An outage that slows or cuts users together, once or repeatedly.

    Once: from `from_s` to `to_s`. Repeatedly: the times from each end to the next begin (`every_s`) and the
    lengths (`lasts_s`) are drawn, and a group may start within an outage.
    """

    of: Group
    """The users whom it hits."""
    factor: Fraction = 0.0
    """The factor on their rates; 0 cuts their links."""
    from_s: SecondsOrZero | None = None
    """The second at which it begins."""
    to_s: SecondsOrZero | None = None
    """The second at which it is over."""
    every_s: SecondsDrawn | None = None
    """The time from the end of one to the begin of the next."""
    lasts_s: SecondsDrawn | None = None
    """The length of each."""
    offline: bool = False
    """Its users are offline during it: those at work are lost, as at the end of a session."""
    name: Name | None = None
    """Names its draws, which are otherwise named by its index in the list; outages of one name hit the same
    groups."""

    @model_validator(mode="after")
    def is_either_scripted_or_drawn(self) -> Outage:
        given = [key for key in ("from_s", "to_s", "every_s", "lasts_s") if getattr(self, key) is not None]
        if given not in (["from_s", "to_s"], ["every_s", "lasts_s"]):
            raise ValueError(
                f"give from_s and to_s, or every_s and lasts_s, not {' and '.join(given) or 'none'}"
            )
        for key in ("every_s", "lasts_s"):
            if key in given and isinf(getattr(self, key).average()):
                raise ValueError(f"{key} must have a mean, for a group to start from")
        if self.from_s is not None and self.to_s is not None:
            if nanoseconds(self.to_s) <= nanoseconds(self.from_s):
                raise ValueError(f"to_s={self.to_s:g} must be above from_s={self.from_s:g}")
            if isinstance(self.of, Cells):
                raise ValueError("from_s and to_s would hit all cells at once: use of: all, or a share")
        return self

    def problems(self, classes: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield each key that does not fit the population's classes, as (key, message)."""
        if isinstance(self.of, OfClass) and self.of.name not in classes:
            names = f"there are: {', '.join(classes)}" if classes else "the population has none"
            yield "of.name", f"no class {self.of.name!r}; {names}{did_you_mean(self.of.name, classes)}"

    def times(self, streams: Streams, name: str | int) -> Timeline[bool]:
        """Return the times at which a group is hit.

        Args:
            streams: Random streams of the run.
            name: The outage's name, or its index in the list.
        """
        if self.every_s is None or self.lasts_s is None:
            begin, end = nanoseconds(self.from_s or 0.0), nanoseconds(self.to_s or 0.0)
            before, during, after = (False, begin), (True, end), (False, FOR_EVER)
            return lambda group, now: before if now < begin else during if now < end else after
        lasts_s, every_s = self.lasts_s, self.every_s
        draws = streams.uniforms("outage", name, "times")
        return timeline_from(lambda group: alternating(draws.since(group, 0), lasts_s, every_s), False)


class Outages:
    """All outages of a run.

    Args:
        outages: As in the scenario.
        streams: The run's random streams.
        class_of: Class of a user, for outages of one class.
    """

    def __init__(
        self, outages: Sequence[Outage], streams: Streams, class_of: ClassOf = lambda user: DEFAULT_CLASS
    ) -> None:
        self._class_of = class_of
        # A stream's name distinguishes 1 from "1", so no outage's name equals the index of another one.
        names = [index if outage.name is None else outage.name for index, outage in enumerate(outages)]
        self._listed = [
            (outage, outage.times(streams, name), streams.uniforms("outage", name, "group"))
            for outage, name in zip(outages, names, strict=True)
        ]
        # A link asks for its user's outages at each change. The groups never change, so no entry becomes
        # invalid. The cache is the object's own, and ends with it.
        self._of = lru_cache(maxsize=MEMBERS_KEPT)(self._hitting)
        self.take_offline = any(outage.offline for outage in outages)
        """True if users may be offline by an outage."""

    def __bool__(self) -> bool:
        return bool(self._listed)

    def factor(self, user: int, now: int) -> tuple[float, int]:
        """Return the factor on a user's rates, and the nanosecond up to which it is guaranteed to stay."""
        factor, until, cut_until = 1.0, FOR_EVER, 0
        for outage, times, group in self._of(user):
            on, end = times(group, now)
            factor *= outage.factor if on else 1.0
            until = min(until, end)
            # A product with a factor of 0 stays 0 until the last such outage ends; others change nothing
            # before.
            if on and not outage.factor:
                cut_until = max(cut_until, end)
        # 0 stands for no cut: an end is always above 0.
        return factor, cut_until or until

    def offline(self, user: int, now: int) -> tuple[bool, int]:
        """Return True if an outage holds a user offline, and the nanosecond up to which that stays."""
        states = [times(group, now) for outage, times, group in self._of(user) if outage.offline]
        # It stays until the last outage ends that holds the user offline; others change nothing before.
        holding = max((end for on, end in states if on), default=None)
        if holding is not None:
            return True, holding
        return False, min((end for _, end in states), default=FOR_EVER)

    def online(self, schedule: OnlineSchedule) -> OnlineSchedule:
        """Return the times at which users are online by a schedule, and no outage holds them offline."""

        def at(user: int, now: int) -> State:
            online, until = schedule(user, now)
            offline, end = self.offline(user, now)
            # Offline by the outage until it ends. A user that the schedule keeps offline longer stays so.
            if offline:
                return False, end if online else max(until, end)
            # An outage cannot bring a user online: one that is offline by its schedule stays so until the
            # schedule changes.
            return online, min(until, end) if online else until

        # Without outages that take users offline the schedule is returned as it is, at no further cost.
        return at if self.take_offline else schedule

    def _hitting(self, user: int) -> tuple[tuple[Outage, Timeline[bool], int], ...]:
        """Return the outages that can hit a user, each with its group of them."""
        name = self._class_of(user)
        # Place 0 alone: a user is in one group of an outage for the whole run.
        groups = [(outage, times, outage.of.group(u(user, 0), name)) for outage, times, u in self._listed]
        return tuple((outage, times, group) for outage, times, group in groups if group is not None)
