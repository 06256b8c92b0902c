"""Search a fleet's settings in shadow, under the modelled clock, for the fastest that keeps the promises.

One seed chooses each protocol's settings: first the size of a round, then the rest of it. Other seeds then
compare the protocols, so that no time is the least of several draws.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from simfl.errors import BadInput, counted
from simfl.results.statistics import Estimate, estimate
from simfl.scenario.fleet import Fleet
from simfl.scenario.schema import Scenario
from simfl.scenario.world import ByTimeout, Deadlines, FixedDeadline
from simfl.studies.plan.evaluate import AGGREGATIONS, Outcome, World, per_second
from simfl.studies.plan.settings import Choices, Refused, Setting

SEEDS = 5  # under which the protocols are compared
MARGIN = 1.5  # of a deadline, over the longest wait that was seen
USERS_A_RUN = 300  # for which a run has several rounds, if its cohort is smaller
MOST_ROUNDS = 5
ROUNDS = 10  # of the scenario that is written


@dataclass(frozen=True)
class Candidate:
    """A protocol's best setting with its means over seeds: seconds of an aggregate, MB and joules of a user
    in a round; and the longest waits by deadline."""

    setting: Setting
    seconds: Estimate
    user_mb: Estimate
    user_j: Estimate | None
    waits: dict[str, float]

    @property
    def name(self) -> str:
        return self.setting.name

    @property
    def scenario(self) -> Scenario:
        """The scenario that runs it, with deadlines above every wait that was seen."""
        s = self.setting.scenario
        return s.model_copy(update={"deadlines": deadlines(self.waits), "rounds": ROUNDS})


@dataclass(frozen=True)
class Answer:
    """The candidates that keep the promises, the fastest first. plain: the fastest that hides nothing, where
    something is to be hidden. world: that of the seed that chose the settings."""

    fleet: Fleet
    candidates: tuple[Candidate, ...]
    plain: Candidate | None
    refused: tuple[Refused, ...]
    world: World

    @property
    def best(self) -> Candidate:
        return self.candidates[0]


def deadline_s(wait_s: float) -> float:
    """Return a deadline with a margin over a wait, of two digits.

    >>> deadline_s(4.514), deadline_s(0.0)
    (6.8, 0.01)
    """
    wanted = max(0.01, MARGIN * wait_s)
    step: float = 10 ** (math.floor(math.log10(wanted)) - 1)
    return float(f"{math.ceil(wanted / step - 1e-9) * step:.2g}")


def deadlines(waits: Mapping[str, float]) -> Deadlines:
    """Return the deadlines for such waits."""
    return Deadlines(**{name: FixedDeadline(after_s=deadline_s(wait)) for name, wait in waits.items()})


def deadlines_decide(setting: Setting) -> bool:
    """Return True where losses are waited for until a deadline, or a buffer invites others after one."""
    return isinstance(setting.scenario.detect, ByTimeout) or setting.scenario.asynchronous


def plan(fleet: Fleet, tell: Callable[[str], None] = lambda stage: None) -> Answer:
    """Return what a fleet should run. BadInput if no protocol keeps its promises."""
    tell("making the users")
    world = World.of(fleet, fleet.seed)
    choices = Choices.of(fleet, world.study, per_second(world, fleet))
    refused, chosen = list[Refused](), list[Setting]()
    for name in fleet.entries:
        found = choices.settings(name)
        if isinstance(found, Refused):
            refused.append(found)
            continue
        tell(f"choosing the settings of {name}")
        best = choose(world, found)
        if isinstance(best, Refused):
            refused.append(best)
        else:
            chosen.append(best)
    outcomes = compare(fleet, chosen, {}, tell)
    waits = {name: _waits(runs) for name, runs in outcomes.items()}
    if again := [setting for setting in chosen if deadlines_decide(setting)]:
        outcomes |= compare(fleet, again, waits, tell)
    kept = list[Candidate]()
    for setting in chosen:
        if why := _unkept(fleet, outcomes[setting.name]):
            refused.append(Refused(setting.name, why))
        else:
            kept.append(_candidate(setting, outcomes[setting.name], waits[setting.name]))
    return _answer(fleet, kept, refused, world)


def compare(
    fleet: Fleet,
    chosen: Sequence[Setting],
    waits: Mapping[str, Mapping[str, float]],
    tell: Callable[[str], None],
) -> dict[str, list[Outcome]]:
    """Run settings under each seed, with deadlines above these waits, by name, as far as they are known."""
    outcomes: dict[str, list[Outcome]] = {setting.name: [] for setting in chosen}
    for seed in range(fleet.seed + 1, fleet.seed + 1 + SEEDS) if chosen else ():
        tell(f"comparing {counted(len(chosen), 'protocol')}: seed {seed - fleet.seed} of {SEEDS}")
        world = World.of(fleet, seed)
        for setting in chosen:
            known = deadlines(waits[setting.name]) if setting.name in waits else None
            outcomes[setting.name].append(world.run(setting, rounds_of(setting), known))
    return outcomes


def _waits(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the longest waits of all runs."""
    return {name: max(o.waits.get(name, 0.0) for o in outcomes) for name in outcomes[0].waits}


def choose(world: World, found: Sequence[Sequence[Setting]]) -> Setting | Refused:
    """Return the fastest setting under one seed: the best size of a round, by each size's first setting, and
    then the best of that size."""

    def run(setting: Setting) -> Outcome:
        outcome = world.run(setting, rounds_of(setting))
        if deadlines_decide(setting):
            outcome = world.run(setting, rounds_of(setting), deadlines(outcome.waits))
        return outcome

    times = {id(settings[0]): run(settings[0]) for settings in found}
    size = min(found, key=lambda settings: times[id(settings[0])].seconds)
    times |= {id(setting): run(setting) for setting in size[1:]}
    best = min(size, key=lambda setting: times[id(setting)].seconds)
    outcome = times[id(best)]
    if not outcome.completed:
        return Refused(best.name, f"no round was completed: {outcome.why}")
    return best


def rounds_of(setting: Setting) -> int:
    """Return the rounds of a run: several of a small cohort, whose times differ more; or aggregations."""
    s = setting.scenario
    return AGGREGATIONS if s.asynchronous else max(1, min(MOST_ROUNDS, USERS_A_RUN // s.cohort))


def size_of(setting: Setting) -> int:
    """Return the users of a round, or of those in flight."""
    s = setting.scenario
    return s.cohort if s.buffer is None else s.buffer.concurrency or s.cohort


def _candidate(setting: Setting, outcomes: Sequence[Outcome], waits: dict[str, float]) -> Candidate:
    joules = [o.user_j for o in outcomes if o.user_j is not None]
    return Candidate(
        setting,
        estimate([o.seconds for o in outcomes]),
        estimate([o.user_mb for o in outcomes]),
        estimate(joules) if joules else None,
        waits,
    )


def _unkept(fleet: Fleet, outcomes: Iterable[Outcome]) -> str:
    """Return which promise a setting's runs broke, or nothing."""
    runs = list(outcomes)
    if failed := [o for o in runs if not o.completed]:
        return f"no round was completed: {failed[0].why}"
    seconds, user_mb = (estimate([getattr(o, key) for o in runs]).mean for key in ("seconds", "user_mb"))
    if fleet.within_s is not None and seconds > fleet.within_s:
        return f"takes {seconds:.3g} s, above within_s={fleet.within_s:g}"
    if fleet.user_mb is not None and user_mb > fleet.user_mb:
        return f"takes {user_mb:.3g} MB of a user, above user_mb={fleet.user_mb:g}"
    return ""


def _answer(fleet: Fleet, kept: Sequence[Candidate], refused: Sequence[Refused], world: World) -> Answer:
    ranked = sorted(kept, key=lambda candidate: candidate.seconds.mean)
    asked = fleet.colluders is not None
    hiding = [c for c in ranked if not asked or c.setting.promise.insecure is not None]
    plainly = [c for c in ranked if c not in hiding]
    if not hiding:
        whys = "; ".join(f"{one.name}: {one.why}" for one in refused)
        raise BadInput(f"{fleet.name}: no protocol keeps the promises: {whys or 'none hides anything'}")
    return Answer(fleet, tuple(hiding), plainly[0] if plainly else None, tuple(refused), world)
