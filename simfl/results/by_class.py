"""A run by class of users: who took part, who was lost, and whom the others waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Self

from simfl.results.block import Block, Count, Seconds
from simfl.results.metrics import Path, Round
from simfl.results.trace import PHASES, SERVER
from simfl.virtual_time import NS


class ClassSummary(Block):
    """A class of users in one protocol's run. invited: users of its rounds, each time; aggregated: updates in
    aggregates; lost: by phase; waited_s: seconds of the run's critical path that its users took, by phase."""

    users: Count
    invited: Count
    aggregated: Count
    lost: dict[str, Count]
    waited_s: dict[str, Seconds]

    @classmethod
    def of_all(
        cls, rounds: Iterable[Round], path: Path, users: dict[str, int], class_of: Callable[[int], str]
    ) -> dict[str, Self]:
        """Return the summary of each class. users: their numbers by class; path: the run's critical path."""
        invited, aggregated = Counter[str](), Counter[str]()
        lost, waited = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for r in rounds:
            invited.update(class_of(user) for user in r.invited)
            aggregated.update(class_of(user) for user, _, _ in r.members)
            for (user, phase), times in r.missed.items():
                lost[class_of(user), phase] += times
        for (phase, party, _), ns in path.items():
            if party != SERVER:
                waited[class_of(party), phase] += ns
        return {
            name: cls(
                users=count,
                invited=invited[name],
                aggregated=aggregated[name],
                lost={phase: lost[name, phase] for phase in PHASES},
                waited_s={phase: waited[name, phase] / NS for phase in PHASES},
            )
            for name, count in users.items()
        }
