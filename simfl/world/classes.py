"""The assignment of users to classes. The settings of a class are in `scenario.world.UserClass`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.random_streams import Streams
from simfl.world.availability import FOR_EVER, OnlineTimes, State
from simfl.world.dropout import Losses, Planned, PlannedLoss

DEFAULT_CLASS = ""
"""Name of the only class where a scenario has none."""


@dataclass(frozen=True)
class Classes:
    """The class of each of N users."""

    names: tuple[str, ...]
    """Names of all classes."""
    member: NDArray[np.int16]
    """Index of each user's class in `names`, [N]."""

    @classmethod
    def drawn(cls, shares: Mapping[str, float], users: int, streams: Streams) -> Classes:
        """Draw each user's class by its share of all; nobody's depends on how many users there are.

        >>> Classes.drawn({"4g": 0.5, "5g": 0.5}, 6, Streams(1)).member.tolist()
        [1, 0, 1, 1, 1, 0]
        """
        if len(shares) == 1:
            return cls(tuple(shares), np.zeros(users, np.int16))
        ends = np.cumsum(list(shares.values()))[:-1]
        coins = streams.rng("classes").random(users)
        return cls(tuple(shares), np.searchsorted(ends, coins, side="right").astype(np.int16))

    def of(self, user: int) -> str:
        """Return the name of a user's class."""
        return self.names[int(self.member[user])]

    def sizes(self) -> dict[str, int]:
        counts = np.bincount(self.member, minlength=len(self.names))
        return {name: int(count) for name, count in zip(self.names, counts, strict=True)}

    def combined(self, values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return each user's value [N] out of those of its own class, each [N]."""
        found = values[0]
        for number, of_class in enumerate(values[1:], 1):  # numpy's `choose` takes 32 arrays at most
            found = np.where(self.member == number, of_class, found)
        return found


@dataclass(frozen=True)
class LossesByClass:
    """The losses of all N users, each by the model of its class.

    A model draws for all selected users, whatever their class. So a fraction is one of all of these, and a
    class's losses depend on no other class.
    """

    each: tuple[Losses, ...]
    """Losses by each class's model, in the order of the classes."""
    member: NDArray[np.int16]
    """Index of each user's class, [N]."""

    def in_round(self, index: int, selected: Sequence[int]) -> Planned:
        planned: Planned = {}
        for number, losses in enumerate(self.each):
            lost = losses.in_round(index, selected)
            planned |= {user: plan for user, plan in lost.items() if self.member[user] == number}
        return planned

    def in_cycle(self, user: int, cycle: int) -> PlannedLoss | None:
        return self.each[int(self.member[user])].in_cycle(user, cycle)

    def rate_in(self, index: int) -> None:
        """Return no drop-out rate of a round: classes have their own."""


def online_times(classes: Classes, times: Sequence[OnlineTimes], with_time: Sequence[bool]) -> OnlineTimes:
    """Return the times at which users are online, each by the model of its class.

    with_time: of each class, True where its users come and go with time."""
    if len(times) == 1:
        return times[0]
    member = classes.member
    everybody = np.ones(len(member), bool)
    ever = classes.combined([everybody if t.ever_online is None else t.ever_online for t in times])
    by_round = [t.by_round for t in times]

    def at(user: int, now: int) -> State:
        own = member[user]
        return times[own].at(user, now) if with_time[own] else (True, FOR_EVER)

    def in_round(index: int) -> NDArray[np.bool_]:
        return classes.combined([everybody if drawn is None else drawn(index) for drawn in by_round])

    drawn_anew: Callable[[int], NDArray[np.bool_]] | None = in_round if any(by_round) else None
    return OnlineTimes(at, drawn_anew, ever)
