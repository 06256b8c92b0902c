"""Crossovers: the changes of one given at a time by which another protocol would be the fastest.

Each given is multiplied and divided by up to 8, for the best protocols, under the seed that chose their
settings. Where another protocol is faster at that end by more than a tie, the factor is found by halving the
interval of its logarithm.
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
from simfl.studies.workers import RunJobs, in_line, in_order

FURTHEST = 8.0
"""The largest factor, and the largest divisor, of a given."""
RIVALS = 3
"""Protocols that are compared."""
MANY, FEWER_RIVALS = 500, 2
"""Users of a round whose run takes seconds; protocols that are then compared, with one setting each."""
HALVINGS = 3
"""Steps of the search for a factor: it is known to a factor of 2^(3/8)."""
BY = 1.05
"""Factor by which another protocol must be faster: smaller differences are ties."""
RATES = ("lost", "rate", "fraction", "q", "p")
"""Keys of a fleet, and of models of losses, that are probabilities of a loss."""


@dataclass(frozen=True)
class Crossover:
    """A change of a given that makes another protocol the fastest."""

    given: str
    """The given, in words."""
    factor: float
    """The factor at which the other protocol becomes the fastest."""
    best: str
    """Name of that protocol."""


LINKS = "rate of users' links"
GIVENS: dict[str, Callable[[float], Change]] = {
    LINKS: lambda f: Change(links=f),
    "rate of the server's link": lambda f: Change(server=f),
    "slowness of users' devices": lambda f: Change(slowdown=f),
    "length of updates": lambda f: Change(length=f),
}
"""Givens that change the users' world, and none of the settings."""

LOSSES, COLLUDERS = "drop-outs", "colluders"
"""Givens from which settings follow."""


def is_tried(answer: Answer) -> bool:
    """Return True if the answer has rivals and no large rounds: dozens of runs must take a minute at most."""
    rivals = answer.candidates[:RIVALS]
    # Six givens in two directions, with up to four factors of three protocols each.
    return len(rivals) > 1 and max(size_of(c.setting) for c in rivals) <= LARGE


def _rivals(answer: Answer) -> Sequence[Candidate]:
    """Return the protocols that are tried; of rounds that take seconds to run, two."""
    many = any(size_of(c.setting) > MANY for c in answer.candidates[:RIVALS])
    return answer.candidates[: FEWER_RIVALS if many else RIVALS]


def crossovers(
    answer: Answer, watch: Callable[[str], None] = lambda stage: None, run_jobs: RunJobs = in_line
) -> Iterator[Crossover]:
    """Yield the changes that make another protocol the fastest, each given in both directions.

    Args:
        answer: The candidates.
        watch: Called with each stage as it begins.
        run_jobs: Runs the jobs, one for each given and direction.
    """
    if not is_tried(answer):
        return
    trial = Trial(answer.fleet, answer.world, _rivals(answer))
    watch("changing one given at a time")
    # In this process, once for all jobs, which take a copy.
    _ = trial.as_given
    jobs = ((trial, given, sign) for given in (*GIVENS, LOSSES, COLLUDERS) for sign in (1, -1))
    yield from filter(None, in_order(run_jobs(Trial.crossover, jobs)))


@dataclass(frozen=True)
class Trial:
    """The best protocols of a fleet, tried with other givens."""

    fleet: Fleet
    world: World
    rivals: Sequence[Candidate]

    def crossover(self, given: str, sign: int) -> Crossover | None:
        """Return the smallest change of a given by which another protocol is the fastest; None without one.

        Args:
            given: The given.
            sign: 1 for a factor above 1, -1 for one below.
        """
        low, high, first = 0.0, math.log2(FURTHEST), self.rivals[0].name
        # Only the far end is looked at first. A factor at which the answer changes and changes back is not
        # found.
        best = self.fastest(given, 2 ** (sign * high))
        if best in (None, first):
            return None
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            fastest = self.fastest(given, 2 ** (sign * middle))
            # Bisection keeps: at `low` the answer's protocol is the fastest, at `high` it is another one.
            if fastest in (None, first):
                low = middle
            else:
                high, best = middle, fastest
        return Crossover(given, 2 ** (sign * high), str(best))

    def fastest(self, given: str, factor: float) -> str | None:
        """Return the name of the fastest protocol where a given is multiplied by a factor.

        It is the answer's, unless another is faster by more than a tie; None if the given cannot be so.
        """
        change, settings = Change(), self.as_given
        if given in GIVENS:
            change = GIVENS[given](factor)
        # Losses and colluders change which settings keep the guarantees, so these are derived again.
        elif (fleet := changed_fleet(self.fleet, given, factor)) is None:
            return None
        else:
            settings = self.settings(fleet)
        seconds = {
            name: min((self._seconds(setting, change) for setting in tried), default=math.inf)
            for name, tried in settings.items()
        }
        # Equal times: `min` takes the first, and rivals are in the order of the answer.
        first, best = self.rivals[0].name, min(seconds, key=lambda name: seconds[name])
        if seconds[best] == math.inf:
            return None
        # One seed has noise, and a rival that is ahead by a percent would be reported as a change.
        return best if seconds[best] * BY < seconds[first] else first

    @cached_property
    def as_given(self) -> dict[str, list[Setting]]:
        """The settings that are tried with the fleet's own givens."""
        return self.settings(self.fleet)

    def settings(self, fleet: Fleet) -> dict[str, list[Setting]]:
        """Return each rival's settings with the size nearest to the answer's, and with the smallest round.

        The latter is left out where rounds take seconds to run.
        """
        choices = Choices.of(fleet, self.world.experiment, PlainSums(self.world, fleet))
        tried = dict[str, list[Setting]]()
        for rival in self.rivals:
            sizes = choices.settings(rival.name)
            firsts = [settings[0] for settings in sizes] if isinstance(sizes, list) else []
            size = size_of(rival.setting)
            # Two sizes of a round, since a trial of all sizes would multiply the runs.
            nearest = sorted(firsts, key=lambda setting: abs(size_of(setting) - size))[:1]
            smallest = [] if size > MANY else [setting for setting in firsts[:1] if setting not in nearest]
            tried[rival.name] = nearest + smallest
        return tried

    def _seconds(self, setting: Setting, change: Change) -> float:
        return self.world.run(setting, rounds_of(setting), change=change).seconds


def changed_fleet(fleet: Fleet, given: str, factor: float) -> Fleet | None:
    """Return a fleet with its losses or colluders multiplied; None if it has none, or they are too many."""
    keys = fleet.model_dump(mode="json")
    if given == COLLUDERS:
        colluders = round((fleet.colluders or 0) * factor)
        if not fleet.colluders or colluders >= fleet.population.users:
            return None
        keys["collude"] = colluders
    else:
        classes = keys["population"]["classes"] or {}
        blocks = [keys, keys["dropout"], *(c["dropout"] for c in classes.values() if c["dropout"])]
        # `sum`, not `any`: each block must be multiplied.
        if not sum(_multiply(block, factor) for block in blocks):
            return None
    try:
        return Fleet.model_validate(keys)
    # A rate above 1, for instance. Such a fleet does not exist, and so changes no answer.
    except ValueError:
        return None


def _multiply(block: dict[str, Any], factor: float) -> bool:
    """Multiply the rate of a model of losses in place; return False if it has none above zero."""
    keys = [key for key in RATES if block.get(key)]
    for key in keys:
        value = block[key]
        # `worst_case` has a list of rates.
        block[key] = [factor * v for v in value] if isinstance(value, list) else factor * value
    return bool(keys)
