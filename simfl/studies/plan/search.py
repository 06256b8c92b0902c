"""Search a fleet's settings in shadow, under the modelled clock, for the fastest that keeps the promises.

One seed chooses each protocol's settings: first the size of a round, then the rest of it. Other seeds then
compare the protocols, so that no time is the least of several draws.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from simfl.errors import BadInput, counted
from simfl.runs.results.statistics import Estimate, estimate
from simfl.scenario.fleet import Fleet
from simfl.scenario.schema import Scenario
from simfl.scenario.world import ByTimeout, Deadlines, FixedDeadline
from simfl.studies.plan.evaluate import AGGREGATIONS, Outcome, PlainSums, World
from simfl.studies.plan.losses import Losing
from simfl.studies.plan.settings import Choices, Refused, Setting
from simfl.world.link_models import Steady

SEEDS = 5  # under which the protocols are compared
LARGE = 2_000  # users of a round, beyond which a run takes many seconds:
LARGE_SEEDS = 3  # fewer are compared, one setting for each size,
FAR = 1.5  # and only protocols that take at most so many times as long as the fastest
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
    something is to be hidden. world: of the seed that chose the settings; losing: the chances of losses."""

    fleet: Fleet
    candidates: tuple[Candidate, ...]
    plain: Candidate | None
    refused: tuple[Refused, ...]
    world: World
    losing: Losing

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
    choices = Choices.of(fleet, world.study, PlainSums(world, fleet))
    refused, piloted, soonest = list[Refused](), list[tuple[Setting, Outcome]](), math.inf
    for name in fleet.entries:
        found = choices.settings(name)
        tell(f"choosing the settings of {name}")
        best = choose(world, fleet, found, soonest) if isinstance(found, list) else found
        if isinstance(best, Refused):
            refused.append(best)
            continue
        piloted.append(best)
        if best[0].promise.insecure is not None or fleet.colluders is None:
            soonest = min(soonest, best[1].seconds)
    chosen = [setting for setting, _ in piloted]
    large = any(size_of(setting) > LARGE for setting in chosen)
    near = [one for one, outcome in piloted if not large or outcome.seconds <= FAR * soonest]
    outcomes = {setting.name: [outcome] for setting, outcome in piloted}
    outcomes |= compare(fleet, near, {}, tell, LARGE_SEEDS if large else SEEDS)
    waits = {name: _waits(runs) for name, runs in outcomes.items()}
    if again := [setting for setting in chosen if deadlines_decide(setting)]:
        outcomes |= compare(fleet, again, waits, tell, len(outcomes[again[0].name]))
    kept = list[Candidate]()
    for setting in chosen:
        if why := _unkept(fleet, outcomes[setting.name]):
            refused.append(Refused(setting.name, why))
        else:
            kept.append(_candidate(setting, outcomes[setting.name], waits[setting.name]))
    return _answer(choices, kept, refused, world)


def compare(
    fleet: Fleet,
    chosen: Sequence[Setting],
    waits: Mapping[str, Mapping[str, float]],
    tell: Callable[[str], None],
    seeds: int = SEEDS,
) -> dict[str, list[Outcome]]:
    """Run settings under each seed, with deadlines above these waits, by name, as far as they are known."""
    outcomes: dict[str, list[Outcome]] = {setting.name: [] for setting in chosen}
    for seed in range(fleet.seed + 1, fleet.seed + 1 + seeds) if chosen else ():
        tell(f"comparing {counted(len(chosen), 'protocol')}: seed {seed - fleet.seed} of {seeds}")
        world = World.of(fleet, seed)
        for setting in chosen:
            known = deadlines(waits[setting.name]) if setting.name in waits else None
            outcomes[setting.name].append(world.run(setting, rounds_of(setting), known))
    return outcomes


def _waits(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the longest waits of all runs."""
    return {name: max(o.waits.get(name, 0.0) for o in outcomes) for name in outcomes[0].waits}


def choose(
    world: World, fleet: Fleet, found: Sequence[Sequence[Setting]], soonest: float
) -> tuple[Setting, Outcome] | Refused:
    """Return the fastest setting under one seed, with its run: the best size of a round, by each size's first
    setting, and then the best of that size. soonest: what another protocol takes."""
    least = min(floor_s(world, setting) for size in found for setting in size)
    if least > FAR * soonest:
        return Refused(found[0][0].name, f"not run: shares alone take {least:.3g} s on the server's link")

    def run(setting: Setting) -> Outcome:
        outcome = world.run(setting, rounds_of(setting))
        if deadlines_decide(setting):
            outcome = world.run(setting, rounds_of(setting), deadlines(outcome.waits))
        return outcome

    def rank(outcome: Outcome) -> tuple[bool, float]:
        return fleet.user_mb is not None and outcome.user_mb > fleet.user_mb, outcome.seconds

    firsts = [(size, run(size[0])) for size in found]
    size, first = min(firsts, key=lambda one: rank(one[1]))
    others = [] if size_of(size[0]) > LARGE else size[1:]
    setting, outcome = min(
        [(size[0], first), *((one, run(one)) for one in others)], key=lambda one: rank(one[1])
    )
    if not outcome.completed:
        return Refused(setting.name, f"no round was completed: {outcome.why}")
    return setting, outcome


def floor_s(world: World, setting: Setting) -> float:
    """Return the seconds that a round's relayed shares take at least on the server's link."""
    s = setting.scenario
    if s.network.peers == "direct" or s.asynchronous:
        return 0.0
    p = s.params(setting.name, world.study.trainer.d)
    up_bps, down_bps, _ = world.study.people.server_link(0)
    steady = isinstance(s.network.server.varies, Steady) and min(up_bps, down_bps) > 0
    return 8 * s.protocols[setting.name].relayed_bytes(p) / min(up_bps, down_bps) if steady else 0.0


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


def _answer(choices: Choices, kept: Sequence[Candidate], refused: Sequence[Refused], world: World) -> Answer:
    fleet = choices.fleet
    ranked = sorted(kept, key=lambda candidate: candidate.seconds.mean)
    asked = fleet.colluders is not None
    hiding = [c for c in ranked if not asked or c.setting.promise.insecure is not None]
    plainly = [c for c in ranked if c not in hiding]
    if not hiding:
        whys = "; ".join(f"{one.name}: {one.why}" for one in refused)
        raise BadInput(f"{fleet.name}: no protocol keeps the promises: {whys or 'none hides anything'}")
    return Answer(
        fleet, tuple(hiding), plainly[0] if plainly else None, tuple(refused), world, choices.losing
    )
