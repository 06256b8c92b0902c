"""The changes of one given at a time by which another protocol would be the fastest.

Each given is made up to 8 times as much and as little, for the best protocols, under the seed that chose
their settings. Where another is faster at that end by more than a tie, the factor is found by halving.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from simfl.scenario.fleet import Fleet
from simfl.studies.plan.evaluate import Change, PlainSums, World
from simfl.studies.plan.search import LARGE, Answer, Candidate, rounds_of, size_of
from simfl.studies.plan.settings import Choices, Setting

FURTHEST = 8.0  # times as much, or as little
RIVALS = 3  # protocols that are compared
HALVINGS = 3
BY = 1.05  # times that another must be faster
RATES = ("rate", "fraction", "q", "p")  # of models of losses


@dataclass(frozen=True)
class Flip:
    """A given, the factor on it from which on another protocol is the fastest, and which one."""

    given: str
    factor: float
    best: str


LINKS = "rate of users' links"
GIVENS: dict[str, Callable[[float], Change]] = {
    LINKS: lambda f: Change(links=f),
    "rate of the server's link": lambda f: Change(server=f),
    "slowness of users' devices": lambda f: Change(slowdown=f),
    "length of updates": lambda f: Change(longer=f),
}
"""Givens that change the world, and none of the settings."""

LOSSES, COLLUDERS = "drop-outs", "colluders"
"""Givens from which settings follow."""


def is_tried(answer: Answer) -> bool:
    """Return True if the answer has rivals, and rounds so small that dozens are run in a minute."""
    rivals = answer.candidates[:RIVALS]
    return len(rivals) > 1 and max(size_of(c.setting) for c in rivals) <= LARGE


def flips(answer: Answer, tell: Callable[[str], None] = lambda stage: None) -> Iterator[Flip]:
    """Yield what makes another protocol the fastest, each given in both directions."""
    if not is_tried(answer):
        return
    trial = Trial(answer.fleet, answer.world, answer.candidates[:RIVALS])
    for given in (*GIVENS, LOSSES, COLLUDERS):
        tell(f"changing {given}")
        for sign in (1, -1):
            if (found := trial.flip(given, sign)) is not None:
                yield found


@dataclass(frozen=True)
class Trial:
    """The best protocols of a fleet, tried with other givens."""

    fleet: Fleet
    world: World
    rivals: Sequence[Candidate]

    def flip(self, given: str, sign: int) -> Flip | None:
        """Return the least change of a given, upwards or downwards, by which another is the fastest."""
        low, high, first = 0.0, math.log2(FURTHEST), self.rivals[0].name
        best = self.fastest(given, 2 ** (sign * high))
        if best in (None, first):
            return None
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            there = self.fastest(given, 2 ** (sign * middle))
            if there in (None, first):
                low = middle
            else:
                high, best = middle, there
        return Flip(given, 2 ** (sign * high), str(best))

    def fastest(self, given: str, factor: float) -> str | None:
        """Return the fastest where a given is so many times as much, the answer unless another is faster by
        more than a tie; None where the given cannot be so."""
        change, settings = Change(), self.as_given
        if given in GIVENS:
            change = GIVENS[given](factor)
        elif (fleet := changed_fleet(self.fleet, given, factor)) is None:
            return None
        else:
            settings = self.settings(fleet)
        seconds = {
            name: min((self._seconds(one, change) for one in tried), default=math.inf)
            for name, tried in settings.items()
        }
        first, best = self.rivals[0].name, min(seconds, key=lambda name: seconds[name])
        if seconds[best] == math.inf:
            return None
        return best if seconds[best] * BY < seconds[first] else first

    @cached_property
    def as_given(self) -> dict[str, list[Setting]]:
        return self.settings(self.fleet)

    def settings(self, fleet: Fleet) -> dict[str, list[Setting]]:
        """Return what is tried of each protocol: the smallest round, and the size nearest to the answer's."""
        choices = Choices.of(fleet, self.world.study, PlainSums(self.world, fleet))
        found = dict[str, list[Setting]]()
        for rival in self.rivals:
            sizes = choices.settings(rival.name)
            firsts = [one[0] for one in sizes] if isinstance(sizes, list) else []
            wanted = size_of(rival.setting)
            nearest = sorted(firsts, key=lambda one: abs(size_of(one) - wanted))[:1]
            found[rival.name] = nearest + [one for one in firsts[:1] if one not in nearest]
        return found

    def _seconds(self, setting: Setting, change: Change) -> float:
        return self.world.run(setting, rounds_of(setting), change=change).seconds


def changed_fleet(fleet: Fleet, given: str, factor: float) -> Fleet | None:
    """Return a fleet with so many times the losses or colluders; None if there are none, or not so many."""
    said = fleet.model_dump(mode="json")
    if given == COLLUDERS:
        many = round((fleet.colluders or 0) * factor)
        if not fleet.colluders or many >= fleet.population.users:
            return None
        said["collude"] = many
    else:
        classes = said["population"]["classes"] or {}
        blocks = [said["dropout"], *(own["dropout"] for own in classes.values() if own["dropout"])]
        if not sum(_more(block, factor) for block in blocks):  # all of them are multiplied
            return None
    try:
        return Fleet.model_validate(said)
    except ValueError:
        return None


def _more(block: dict[str, Any], factor: float) -> bool:
    """Multiply the rate of a model of losses; return False if it has none above zero."""
    keys = [key for key in RATES if block.get(key)]
    for key in keys:
        value = block[key]
        block[key] = [factor * v for v in value] if isinstance(value, list) else factor * value
    return bool(keys)
